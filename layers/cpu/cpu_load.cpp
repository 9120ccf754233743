// SPDX-License-Identifier: Apache-2.0
#include "layers/cpu/cpu_load.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <sstream>
#include <system_error>

#include "layers/base/counted.h"
#include "layers/base/file_text.h"

namespace convoy {

namespace {

// Of a line "cpuN user nice system idle iowait irq softirq steal guest guest_nice"; guest time is part of user time.
constexpr std::size_t kFields = 7;  // up to softirq
constexpr std::size_t kIdle = 3;
constexpr std::size_t kIoWait = 4;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

std::optional<CpuTimes> parse_cpu_times(std::string_view text, const std::function<bool(int cpu)>& counts,
                                        double ticks) {
  CpuTimes sum;
  bool found = false;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    int cpu = 0;
    if (!line.starts_with("cpu")) continue;
    const auto [end, error] = std::from_chars(line.data() + 3, line.data() + line.size(), cpu);
    if (error != std::errc() || *end != ' ' || !counts(cpu)) continue;  // "cpu " is the sum of all
    std::istringstream words(line.substr(static_cast<std::size_t>(end - line.data())));
    std::array<double, kFields> fields{};
    for (double& field : fields) words >> field;
    if (!words) continue;
    for (std::size_t i = 0; i < kFields; ++i) {
      sum.total += fields[i] / ticks;
      if (i != kIdle && i != kIoWait) sum.busy += fields[i] / ticks;
    }
    found = true;
  }
  return found ? std::optional(sum) : std::nullopt;
}

std::optional<CpuTimes> cpu_times(const std::function<bool(int cpu)>& counts) {
  const auto text = file_text("/proc/stat");
  const long ticks = sysconf(_SC_CLK_TCK);
  if (!text || ticks <= 0) return std::nullopt;
  return parse_cpu_times(*text, counts, static_cast<double>(ticks));
}

double own_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

CpuReading read_cpus(const std::function<bool(int cpu)>& counts) { return {cpu_times(counts), own_cpu_seconds()}; }

std::optional<double> others_share(const std::optional<CpuTimes>& before, const std::optional<CpuTimes>& after,
                                   double own) {
  if (!before || !after || after->total <= before->total) return std::nullopt;
  const double share = (after->busy - before->busy - own) / (after->total - before->total);
  return std::clamp(share, 0.0, 1.0);
}

std::string describe_cpus(int cpus, double quota, std::optional<double> others) {
  std::string text = counted(cpus, "CPU");
  if (quota > 0) text += fmt::format(" (a control group allows the time of {:.3g})", quota);
  if (others) text += fmt::format(", {:.0f} % busy with other work", 100 * *others);
  return text;
}

}  // namespace convoy
