// SPDX-License-Identifier: Apache-2.0
//
// squeue's %L is the time left: [days-]hours:minutes:seconds, minutes:seconds, or a word (UNLIMITED, INVALID).
#include "app/train/job_end.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string_view>
#include <system_error>

#include "app/base/trimmed.h"

namespace convoy {

namespace {

using Seconds = std::chrono::duration<double>;

constexpr Seconds kNoLimit{360.0 * 86400};  // a job without a limit gets an end in a year

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// "1-02:03:04", "02:03:04", "3:04"
std::optional<Seconds> parse_time_left(std::string_view text) {
  std::int64_t days = 0;
  if (const auto dash = text.find('-'); dash != std::string_view::npos) {
    const auto number = whole_number(text.substr(0, dash));
    if (!number) return std::nullopt;
    days = *number;
    text.remove_prefix(dash + 1);
  }
  std::int64_t seconds = 0;
  int fields = 0;
  while (true) {
    const auto colon = text.find(':');
    const auto number = whole_number(text.substr(0, colon));
    if (!number) return std::nullopt;
    seconds = seconds * 60 + *number;
    ++fields;
    if (colon == std::string_view::npos) break;
    text.remove_prefix(colon + 1);
  }
  if (fields < 2 || fields > 3) return std::nullopt;
  return Seconds(static_cast<double>(days * 86400 + seconds));
}

}  // namespace

std::optional<std::string> command_output(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "re"),
                                                             [](std::FILE*) { return 0; });
  if (!pipe) return std::nullopt;
  std::string text;
  std::array<char, 256> part{};
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe.get())) text.append(part.data(), n);
  return pclose(pipe.get()) == 0 ? std::optional(text) : std::nullopt;
}

std::optional<Seconds> time_left_in_job(const Environment& environment, const CommandOutput& run) {
  const auto job = environment("SLURM_JOB_ID");
  if (!job || !whole_number(*job)) return std::nullopt;
  if (const auto end = environment("SLURM_JOB_END_TIME")) {
    if (const auto unix_time = whole_number(*end)) {
      const Seconds left = std::chrono::seconds(*unix_time) - std::chrono::system_clock::now().time_since_epoch();
      return left < kNoLimit ? std::optional(left) : std::nullopt;
    }
  }
  const auto answer = run("timeout 10 squeue --noheader --jobs=" + *job + " --format=%L 2>/dev/null");
  const auto left = answer ? parse_time_left(trimmed(*answer)) : std::nullopt;
  return left && *left < kNoLimit ? left : std::nullopt;
}

}  // namespace convoy
