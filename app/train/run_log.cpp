// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include "layers/base/error.h"

namespace convoy {

RunLog::RunLog(const std::string& path) {
  try {
    logger_ = std::make_unique<spdlog::logger>("run", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
  } catch (const spdlog::spdlog_ex& error) {
    fail_usage("run.dir: cannot write {}: {} (choose another folder with --set run.dir=...)", path, error.what());
  }
  logger_->set_pattern("%Y-%m-%dT%H:%M:%S%z %l: %v");
  logger_->flush_on(spdlog::level::info);
}

RunLog::~RunLog() = default;

void RunLog::info(const std::string& text) { logger_->info("{}", text); }

void RunLog::warn(const std::string& text) { logger_->warn("{}", text); }

}  // namespace convoy
