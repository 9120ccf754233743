// SPDX-License-Identifier: Apache-2.0
//
// The newest numbers of a run as a file for node_exporter's textfile collector (text-based exposition format 0.0.4),
// from which Prometheus reads them. Invariant: a reader finds a whole file, since each is written under a temporary
// name and renamed. It is not synced: what a power loss takes is written again.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

class PrometheusFile {
 public:
  /// path: ends in ".prom", or the collector ignores it. run: the label of every metric.
  PrometheusFile(std::string path, std::string_view run);

  /// Sets the metric `convoy_NAME`, a gauge. `help` is its description at the first call.
  void set(std::string_view name, double value, std::string_view help);
  /// Writes the file. Throws an Error of the system.
  void write();
  /// Whether the last write is a second ago: what changes with every step need not be written more often.
  [[nodiscard]] bool due() const;

  /// The content, with the time of writing (seconds since 1970) as the metric convoy_timestamp_seconds.
  [[nodiscard]] std::string text(double timestamp) const;

 private:
  struct Metric {
    std::string name, help;
    double value = 0;
  };
  std::string path_, label_;
  std::vector<Metric> metrics_;
  std::chrono::steady_clock::time_point written_;
};

}  // namespace convoy
