// SPDX-License-Identifier: Apache-2.0
//
// The energy that this node's processors and this rank's GPU have taken: RAPL's package domains through
// /sys/class/powercap, and NVML's counter of a GPU. Relies on the kernel's powercap interface and on libnvidia-ml,
// which is loaded at run time. Invariant: what is read grows; a counter that has wrapped around counts on.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace convoy {

class EnergyMeter {
 public:
  /// packages: whether this rank reads those of its node: one rank of a node does. gpu_uuid: 32 hexadecimal digits of
  /// the GPU whose energy is read; empty: none. root: of the powercap interface; empty: what CONVOY_POWERCAP says, else
  /// /sys/class/powercap.
  EnergyMeter(bool packages, const std::string& gpu_uuid, std::string root = "");
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  /// Whether there is a counter that can be read.
  [[nodiscard]] bool readable() const { return !packages_.empty() || gpu_ != nullptr; }
  /// Why a counter that should be read is not; empty: all are, or none was wanted.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// Joules since the last call, or since the constructor.
  [[nodiscard]] double take();
  /// The same at most every 0.1 s, 0 in between: a reading takes microseconds, and the counters change every
  /// millisecond.
  [[nodiscard]] double take_sometimes();

 private:
  class Gpu;
  struct Package {
    int descriptor = -1;
    std::uint64_t last = 0, range = 0;  ///< microjoules
  };
  void open_packages(const std::string& root);
  void note(const std::string& problem);

  std::vector<Package> packages_;
  std::unique_ptr<Gpu> gpu_;
  std::string problem_;
  std::chrono::steady_clock::time_point taken_;
};

}  // namespace convoy
