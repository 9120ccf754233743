// SPDX-License-Identifier: Apache-2.0
//
// Compares what the ranks will need with what their nodes, cgroups, resource limits and GPUs have, before the model is
// made. What cannot fit is refused in one line with values that would fit. All functions are collective.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/base/memory_limit.h"
#include "parallel/comm/communicator.h"

namespace convoy {

struct MemoryRequest;

/// Refused above, warned of above: shares of a limit.
inline constexpr double kRefusedShare = 1.1, kWarnedShare = 0.9;

/// One rank's needs and limits, in bytes.
struct RankMemory {
  std::string host;
  double resident = 0;                        ///< of the process before the model is made
  double host_growth = 0, device_growth = 0;  ///< predicted; the latter on a GPU
  std::vector<HostMemoryLimit> limits;        ///< of the host's memory
  std::string gpu;                            ///< its key; empty: the CPU computes
  double gpu_bytes = 0;                       ///< that its tensors may take
  [[nodiscard]] double peak() const { return gpu.empty() ? resident + host_growth : device_growth; }
};

/// The limit of which the largest share is needed, by the ranks that have it together.
struct TightestLimit {
  std::string name, host;
  int ranks = 0;                  ///< that share it
  int rank = 0;                   ///< of those, the one that needs most
  double needed = 0, bytes = 0;   ///< of all of them together; page cache and what they hold already counted as theirs
  double peak = 0, resident = 0;  ///< of that rank: RankMemory::peak(), RankMemory::resident
  bool on_gpu = false;            ///< it computes on a GPU
  [[nodiscard]] double share() const { return bytes > 0 ? needed / bytes : 1e9; }
};

/// Sums over ranks, as many numbers as there are nodes: what their limits have and what they need of them. Pure.
class MemorySums {
 public:
  void add(int rank, const RankMemory& memory);
  void add(const MemorySums& others);
  /// ranks = 0: there is no limit.
  [[nodiscard]] TightestLimit tightest() const;
  /// RankMemory::peak() of the rank that needs most.
  [[nodiscard]] double largest_peak() const { return largest_peak_; }
  /// To travel between ranks.
  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static MemorySums from_text(const std::string& text);

 private:
  struct Sum {
    TightestLimit limit;  // its bytes: the least of what is free
    double held = 0;      // by its ranks, already
  };
  std::map<std::string, Sum> shared_;  // by host and key
  TightestLimit own_;                  // the tightest of those that one rank has to itself
  double largest_peak_ = 0;
};

struct MemoryReport {
  double backend_bytes = 0;  ///< predicted of this rank's tensors
  double peak_bytes = 0;     ///< and of its process (of the GPU's memory, where a GPU computes)
  std::string line;          ///< "predicted peak 1.2 GiB of 7.8 GiB a rank"
  std::string warning;       ///< empty: there is room
};

/// Throws a collective usage Error when a limit is exceeded, unless run.allow_over_memory is set. measured: the peak of
/// the process before, in bytes.
[[nodiscard]] MemoryReport check_memory(const MemoryRequest& request, Communicator& all, const std::string& host,
                                        double measured);
/// The same before units are measured for partition = "auto". Returns the predicted peak of this rank while it
/// measures.
double check_memory_of_measuring(const MemoryRequest& request, Communicator& all, const std::string& host);

/// "1.2 GiB", "310 MiB".
[[nodiscard]] std::string format_memory(double bytes);

}  // namespace convoy
