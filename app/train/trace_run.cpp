// SPDX-License-Identifier: Apache-2.0
#include "app/train/trace_run.h"

#include <utility>
#include <vector>

#include "io/log/trace_file.h"
#include "layers/base/trace.h"
#include "parallel/comm/agree.h"
#include "parallel/comm/clock_offset.h"
#include "parallel/comm/host_exchange.h"

namespace convoy {

void write_trace(Run& run, const std::string& path) {
  trace::stop();
  Communicator& all = *run.communicator;
  RankTrace own{"", clock_offset(all, run.host), trace::dropped(), trace::events()};
  own.name = fmt::format("rank {} (replica {}, stage {})", all.rank(), run.replica(), run.stage());
  const std::string text = pack_trace(own);
  std::vector<RankTrace> ranks{std::move(own)};
  if (!run.is_root()) send_text(all, text, 0, "trace");
  for (int rank = 1; run.is_root() && rank < all.size(); ++rank) {
    ranks.push_back(unpack_trace(receive_text(all, rank, "trace")));
  }
  agree(
      all,
      [&] {
        if (run.is_root()) write_trace_file(path, ranks);
      },
      "writing the trace");
}

}  // namespace convoy
