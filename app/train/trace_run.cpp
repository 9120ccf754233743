// SPDX-License-Identifier: Apache-2.0
#include "app/train/trace_run.h"

#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "io/log/trace_file.h"
#include "layers/base/trace.h"
#include "parallel/comm/agree.h"
#include "parallel/comm/clock_offset.h"
#include "parallel/comm/host_exchange.h"

namespace convoy {

// Rank 0 writes one rank after the other. What goes wrong there is thrown when all have sent theirs.
void write_trace(Run& run, const std::string& path) {
  trace::stop();
  Communicator& all = *run.communicator;
  RankTrace own{"", clock_offset(all, run.host), trace::dropped(), trace::events()};
  own.name = fmt::format("rank {} (replica {}, stage {})", all.rank(), run.replica(), run.stage());
  double zero = earliest_start(own);
  all.all_reduce(std::span<double>(&zero, 1), ReduceOp::kMin, "trace");
  if (!run.is_root()) send_text(all, pack_trace(std::exchange(own, {})), 0, "trace");
  std::optional<TraceFile> file;
  std::exception_ptr problem;
  for (int rank = 0; run.is_root() && rank < all.size(); ++rank) {
    const std::string text = rank > 0 ? receive_text(all, rank, "trace") : "";
    try {
      if (rank == 0) file.emplace(path, zero);
      if (!problem) file->add(rank == 0 ? std::exchange(own, {}) : unpack_trace(text));
    } catch (const std::exception&) {
      problem = std::current_exception();
    }
  }
  agree(
      all,
      [&] {
        if (problem) std::rethrow_exception(problem);
        if (file) file->finish();
      },
      "writing the trace");
}

}  // namespace convoy
