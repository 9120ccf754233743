// SPDX-License-Identifier: Apache-2.0
#include "app/launch/run_status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "io/checkpoint/checkpoint_folder.h"
#include "layers/base/error.h"

namespace convoy {

RunStatus::RunStatus(std::string run_folder, std::string checkpoint_folder)
    : metrics_(std::move(run_folder) + "/metrics.jsonl"), checkpoints_(std::move(checkpoint_folder)) {}

void RunStatus::begin() {
  poll();
  starts_at_begin_ = starts_;
  start_step_.reset();
  first_step_at_.reset();
  last_seen_at_.reset();
  stopped_early_ = false;
}

void RunStatus::take_up(std::int64_t starts_before) {
  starts_at_begin_ = starts_before;
  poll();
}

void RunStatus::poll() {
  const int descriptor = ::open(metrics_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    starts_ = starts_at_begin_ = 0;  // a file to come starts over
    inode_ = 0;
    return;
  }
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && (status.st_ino != inode_ || status.st_size < offset_)) {
    inode_ = status.st_ino;  // a trainer that resumes puts a shortened copy in place
    offset_ = 0;
    starts_ = 0;
    half_line_.clear();
  }
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t count = ::pread(descriptor, buffer.data(), buffer.size(), offset_);
    if (count <= 0) break;
    offset_ += count;
    for (const char c : std::string_view(buffer.data(), static_cast<std::size_t>(count))) {
      if (c != '\n') {
        half_line_ += c;
        continue;
      }
      read_line(half_line_);
      half_line_.clear();
    }
  }
  ::close(descriptor);
}

void RunStatus::read_line(const std::string& line) {
  if (!fields_.parse(line)) return;
  const std::string_view event = fields_.text("event");
  const bool start = event == "start";
  if (start) ++starts_;
  if (starts_ <= starts_at_begin_) return;
  const std::string_view reason = event == "end" ? fields_.text("reason") : "";
  stopped_early_ = reason == "signal" || reason == "max_time";
  const auto step = fields_.integer("step");
  if (!step || (!start && event != "step")) return;
  last_seen_at_ = std::chrono::steady_clock::now();
  if (start) {
    start_step_ = step;
  } else if (!first_step_at_) {
    first_step_at_ = last_seen_at_;
  }
}

std::int64_t RunStatus::newest_checkpoint() const {
  try {
    const auto files = list_checkpoints(checkpoints_);
    return files.empty() ? 0 : files.back().step;
  } catch (const Error&) {
    return 0;
  }
}

double RunStatus::seconds_since_last_line() const {
  struct stat status {};
  if (::stat(metrics_.c_str(), &status) != 0) return 0;
  return std::max(0.0, std::difftime(std::time(nullptr), status.st_mtime));
}

}  // namespace convoy
