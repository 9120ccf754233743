// SPDX-License-Identifier: Apache-2.0
//
// Logs of a run. metrics.jsonl is read by the reader of `convoy report`, state.json by that of `convoy launch`.
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "app/launch/job_state.h"
#include "app/verify/file_check.h"
#include "io/files/crc32c.h"
#include "io/log/metrics_reader.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"

namespace convoy {

namespace {

FileCheck damaged(const std::string& path, std::string text) { return {path, FileState::kDamaged, std::move(text)}; }

FileCheck cannot_read(const std::string& path) {
  return damaged(path, fmt::format("cannot be read: {}", std::strerror(errno)));
}

// The masked checksum of a record's part (io/log/tensorboard.cpp).
bool has_masked_crc(const std::string& bytes, const char* stored) {
  const std::uint32_t crc = crc32c(bytes);
  std::uint32_t found = 0;
  std::memcpy(&found, stored, sizeof found);
  return found == std::rotr(crc, 15) + 0xA282EAD8U;
}

}  // namespace

const char* state_word(FileState state) {
  constexpr std::array<const char*, 3> kWords{"valid", "readable", "damaged"};
  return kWords.at(static_cast<std::size_t>(state));
}

FileCheck check_metrics(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return cannot_read(path);
  std::int64_t number = 0, steps = 0;
  std::map<std::string, std::int64_t, std::less<>> last;  // step of each event
  MetricsLine line;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (file.eof()) return damaged(path, fmt::format("line {} is incomplete (the next start cuts it off)", number));
    if (!line.parse(text) || line.text("event").empty()) {
      return damaged(path, fmt::format("line {} is no JSON object with an event", number));
    }
    const std::string event(line.text("event"));
    if (event != "step" && event != "eval" && event != "checkpoint" && event != "health") continue;
    const auto step = line.integer("step");
    if (!step) return damaged(path, fmt::format("line {}: the event {} has no step", number, event));
    const auto before = last.find(event);
    if (before != last.end() && (event == "step" ? *step <= before->second : *step < before->second)) {
      return damaged(path, fmt::format("line {}: {} {} comes after {}", number, event, *step, before->second));
    }
    last[event] = *step;
    steps += event == "step" ? 1 : 0;
  }
  if (file.bad()) return cannot_read(path);
  return {path, FileState::kValid,
          fmt::format("{}, {}", counted(number, "line"),
                      steps == 0 ? "no steps" : fmt::format("to step {}", last["step"]))};
}

FileCheck check_events(const std::string& path) {
  constexpr std::size_t kLength = 8, kCrc = 4;
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!file || error) return cannot_read(path);
  std::int64_t records = 0;
  for (std::uintmax_t at = 0; at < size; ++records) {
    const auto broken = [&](const char* what) {
      return damaged(path, fmt::format("record {} is {} (at byte {})", records + 1, what, at));
    };
    std::string head(kLength + kCrc, '\0');
    if (!file.read(head.data(), static_cast<std::streamsize>(head.size()))) return broken("incomplete");
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, head.data(), sizeof bytes);
    if (!has_masked_crc(head.substr(0, kLength), head.data() + kLength)) return broken("damaged");
    if (bytes > size - at) return broken("incomplete");
    std::string data(bytes, '\0'), crc(kCrc, '\0');
    if (!file.read(data.data(), static_cast<std::streamsize>(bytes)) || !file.read(crc.data(), kCrc)) {
      return broken("incomplete");
    }
    if (!has_masked_crc(data, crc.data())) return broken("damaged");
    at += head.size() + bytes + kCrc;
  }
  return {path, FileState::kValid, fmt::format("{} of TensorBoard", counted(records, "record"))};
}

FileCheck check_job_state(const std::string& path) {
  try {
    if (!file_text(path)) return cannot_read(path);
    const JobState state = read_job_state(path);
    return {path, FileState::kValid, fmt::format("{} of a launch", counted(state.generations.size(), "start"))};
  } catch (const Error& error) {
    return damaged(path, error.what());
  }
}

FileCheck check_json(const std::string& path) {
  const auto text = file_text(path);
  if (!text) return cannot_read(path);
  if (!nlohmann::json::accept(*text)) return damaged(path, "is no JSON");
  return {path, FileState::kReadable, "JSON"};
}

FileCheck check_text(const std::string& path) {
  const auto text = file_text(path);
  if (!text) return cannot_read(path);
  const auto zeros = std::count(text->begin(), text->end(), '\0');
  if (zeros > 0) return damaged(path, fmt::format("{} in it (of a power loss?)", counted(zeros, "zero byte")));
  return {path, FileState::kReadable, counted(std::count(text->begin(), text->end(), '\n'), "line")};
}

}  // namespace convoy
