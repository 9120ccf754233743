// SPDX-License-Identifier: Apache-2.0
//
// Lines are formatted here, to control the digits of numbers; nlohmann::json escapes strings. One line is one write()
// to a file opened with O_APPEND.
#include "io/log/metrics_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "io/files/atomic_file.h"
#include "io/log/metrics_reader.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

std::string quoted(const std::string& text) {
  // Bytes that are not UTF-8 (a strange path) become the replacement character rather than an error.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(double number) { return std::isfinite(number) ? fmt::format("{:.9g}", number) : "null"; }

std::string json_text(const MetricsField& field) {
  if (const auto* text = std::get_if<std::string>(&field.value)) return quoted(*text);
  if (const auto* flag = std::get_if<bool>(&field.value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<double>(&field.value)) return json_text(*number);
  if (const auto* numbers = std::get_if<std::vector<double>>(&field.value)) {
    std::vector<std::string> words;
    for (const double number : *numbers) words.push_back(json_text(number));
    return fmt::format("[{}]", fmt::join(words, ","));
  }
  if (const auto* texts = std::get_if<std::vector<std::string>>(&field.value)) {
    std::vector<std::string> words;
    for (const std::string& text : *texts) words.push_back(quoted(text));
    return fmt::format("[{}]", fmt::join(words, ","));
  }
  return std::to_string(std::get<std::int64_t>(field.value));
}

// Whether a run that resumes at `step` keeps this line.
bool keeps(MetricsLine& fields, const std::string& line, std::int64_t step) {
  if (!fields.parse(line)) return false;
  const std::string_view event = fields.text("event");
  const bool numbered =
      event == "step" || event == "eval" || event == "checkpoint" || event == "copy" || event == "health";
  return !numbered || fields.integer("step").value_or(step) <= step;
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

std::string metrics_line(const std::vector<MetricsField>& fields) {
  std::string line = "{";
  for (const auto& field : fields) {
    if (line.size() > 1) line += ',';
    line += quoted(field.key) + ":" + json_text(field);
  }
  return line + "}";
}

MetricsLog::MetricsLog(std::string path) : path_(std::move(path)) {
  open();
  try {
    cut_half_line();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MetricsLog::open() {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_system(errno, "cannot open {} for writing: {}", path_, std::strerror(errno));
}

void MetricsLog::cut_half_line() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_io("cannot look at {}: {}", path_, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return;
  off_t end = status.st_size;
  char last = 0;
  while (end > 0 && ::pread(descriptor_, &last, 1, end - 1) == 1 && last != '\n') --end;
  if (end != status.st_size && ::ftruncate(descriptor_, end) != 0) {
    fail_io("cannot cut the half-written last line of {}: {}", path_, std::strerror(errno));
  }
}

void MetricsLog::write(const std::vector<MetricsField>& fields) {
  const std::string line = metrics_line(fields) + "\n";
  write_all(descriptor_, bytes_of(line), path_);
}

void MetricsLog::sync() {
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL && errno != ENOTSUP) {  // those of what is no plain file
    fail_io("cannot write {}: {}", path_, std::strerror(errno));
  }
  if (!std::exchange(is_named_, true)) sync_folder_of(path_);
}

std::int64_t MetricsLog::truncate_after(std::int64_t step) {
  std::string kept;
  std::int64_t dropped = 0;
  std::ifstream file(path_);
  if (!file.is_open()) fail_io("cannot read {}: {}", path_, std::strerror(errno));
  MetricsLine fields;
  for (std::string line; std::getline(file, line);) {
    if (keeps(fields, line, step)) {
      kept += line + "\n";
    } else {
      ++dropped;
    }
  }
  if (file.bad()) fail_io("cannot read {}", path_);
  if (dropped == 0) return 0;
  write_file_atomically(path_, bytes_of(kept));
  ::close(std::exchange(descriptor_, -1));
  open();
  return dropped;
}

}  // namespace convoy
