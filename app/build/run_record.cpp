// SPDX-License-Identifier: Apache-2.0
#include "app/build/run_record.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <system_error>

#include "io/files/atomic_file.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;
using RecordJson = nlohmann::ordered_json;

std::string record_path(const std::string& folder) { return folder + "/run.json"; }

}  // namespace

RunRecord read_run_record(const std::string& folder) {
  const std::string path = record_path(folder);
  const auto text = file_text(path);
  if (!text && errno == ENOENT) return {};
  if (!text) fail_io("cannot read {}: {}", path, std::strerror(errno));
  try {
    const RecordJson json = RecordJson::parse(*text);
    RunRecord record{json.at("id"), json.at("created"), json.at("resumed_file"), json.at("checkpoints")};
    if (record.id.empty()) fail("\"id\" is empty");
    return record;
  } catch (const std::exception& error) {
    fail_usage(
        "{}: is not the record of a run: {} (remove it: the run then takes its identity from the checkpoints in its "
        "folder)",
        path, error.what());
  }
}

void write_run_record(const std::string& folder, const RunRecord& record) {
  const RecordJson json{{"id", record.id},
                        {"created", record.created},
                        {"resumed_file", record.resumed_file},
                        {"checkpoints", record.checkpoints}};
  const std::string text = json.dump(1, ' ', false, RecordJson::error_handler_t::replace) + "\n";
  write_file_atomically(record_path(folder), std::as_bytes(std::span(text)));
}

bool has_run_record(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(record_path(folder), ignored);
}

std::string new_run_id() {
  std::random_device random;
  const auto word = [&] { return static_cast<std::uint32_t>(random()); };
  const std::uint32_t b = word(), c = word();
  const std::uint32_t version = (b & 0xFFFFU & 0x0FFFU) | 0x4000U;
  const std::uint32_t variant = (c >> 16 & 0x3FFFU) | 0x8000U;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:04x}{:08x}", word(), b >> 16, version, variant, c & 0xFFFFU,
                     word());
}

std::string canonical_path(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(fs::absolute(path), error);
  const fs::path result = error ? fs::absolute(path).lexically_normal() : canonical;
  return result.has_filename() ? result.string() : result.parent_path().string();
}

bool lies_in(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

}  // namespace convoy
