// SPDX-License-Identifier: Apache-2.0
//
// A trace of several ranks as one JSON file in the Chrome trace event format, which chrome://tracing and
// ui.perfetto.dev open: one process per rank, one thread row per track, complete events ("ph": "X") in microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// Writes all ranks on one clock, whose zero is the earliest event. Atomically, over what was there. Throws Error
/// naming the file when it cannot be written. Process i is rank i of the list; otherData.dropped_events has their
/// drops. What overlaps on a track goes to further rows of it ("send 2"); args.step is the event's step.
void write_trace_file(const std::string& path, const std::vector<RankTrace>& ranks);

}  // namespace convoy
