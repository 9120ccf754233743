// SPDX-License-Identifier: Apache-2.0
//
// How busy the CPUs of this process are with the work of others: the kernel's counters in /proc/stat, less the CPU time
// of the job's own processes. Invariant: without the counters the load is unknown, never zero.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace convoy {

/// CPU seconds since the machine started, summed over a set of CPUs. Steal time of virtual machines is not work.
struct CpuTimes {
  double busy = 0;
  double total = 0;  ///< busy and idle
};

/// Those of the CPUs for which `counts` is true, of the text of /proc/stat with `ticks` counts a second; nothing where
/// the text names none of them.
[[nodiscard]] std::optional<CpuTimes> parse_cpu_times(std::string_view text, const std::function<bool(int cpu)>& counts,
                                                      double ticks);
/// Now.
[[nodiscard]] std::optional<CpuTimes> cpu_times(const std::function<bool(int cpu)>& counts);

/// CPU seconds that this process has used.
[[nodiscard]] double own_cpu_seconds();

/// A reading of the CPUs and of this process.
struct CpuReading {
  std::optional<CpuTimes> cpus;
  double own = 0;
};
[[nodiscard]] CpuReading read_cpus(const std::function<bool(int cpu)>& counts);

/// The share of the CPUs' time, 0 to 1, that was others' work between two readings, of which `own` seconds were the
/// job's; nothing when either is missing or no time lies between them.
[[nodiscard]] std::optional<double> others_share(const std::optional<CpuTimes>& before,
                                                 const std::optional<CpuTimes>& after, double own);

/// "2 CPUs, 37 % busy with other work"; a quota (CPUs; 0: none) and an unknown load are said, or left out.
[[nodiscard]] std::string describe_cpus(int cpus, double quota, std::optional<double> others);

}  // namespace convoy
