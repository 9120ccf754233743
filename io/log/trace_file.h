// SPDX-License-Identifier: Apache-2.0
//
// A trace of several ranks as one JSON file in the Chrome trace event format, which chrome://tracing and
// ui.perfetto.dev open: one process per rank, one thread row per track, complete events ("ph": "X") in microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/files/atomic_file.h"
#include "layers/base/trace.h"

namespace convoy {

struct RankTrace {
  std::string name;           ///< "rank 3 (replica 1, stage 1)"
  double clock_offset = 0;    ///< seconds to add to this rank's times to get rank 0's clock
  std::uint64_t dropped = 0;  ///< events that did not fit in its recorder
  std::vector<trace::Event> events;
};

/// As text, to travel between ranks, and back. Throws Error when the text is not one of these.
[[nodiscard]] std::string pack_trace(const RankTrace& rank);
[[nodiscard]] RankTrace unpack_trace(const std::string& text);

/// When its first event starts, on rank 0's clock, in seconds; infinite without events.
[[nodiscard]] double earliest_start(const RankTrace& rank);

/// A file of all ranks on one clock, written rank by rank, so that no process holds them all. Throws Error naming the
/// file when it cannot be written. What overlaps on a track goes to further rows of it ("send 2"); args.step is the
/// event's step.
class TraceFile {
 public:
  /// zero: of the file's clock, the earliest_start() of all ranks.
  TraceFile(const std::string& path, double zero);
  /// The next rank, which becomes process 0, 1, ... of the file.
  void add(const RankTrace& rank);
  /// Puts the file in its place, atomically, over what was there. otherData.dropped_events has the drops of each rank.
  void finish();

 private:
  void write(const std::string& text);

  std::string path_;
  AtomicFile file_;
  double zero_;
  std::vector<std::uint64_t> dropped_;
};

/// The same of ranks that are all here.
void write_trace_file(const std::string& path, const std::vector<RankTrace>& ranks);

}  // namespace convoy
