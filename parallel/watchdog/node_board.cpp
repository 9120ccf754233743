// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog/node_board.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "parallel/base/mpi_check.h"

namespace convoy {

namespace {

static_assert(std::is_trivially_copyable_v<RankFacts>);
constexpr std::size_t kAlignment = alignof(StatusRow);
constexpr std::size_t kSegment = sizeof(StatusRow) + kAlignment;  // MPI promises no alignment

// A page starts at the same address modulo kAlignment in every process.
void* aligned(void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return static_cast<std::byte*>(memory) + (kAlignment - address % kAlignment) % kAlignment;
}

}  // namespace

NodeBoard::NodeBoard(MPI_Comm node, const std::string& host) {
  int world_size = 1;
  CONVOY_MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_));
  CONVOY_MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
  int node_size = 1;
  CONVOY_MPI_CHECK(MPI_Comm_size(node, &node_size));
  locals_.resize(static_cast<std::size_t>(node_size));
  CONVOY_MPI_CHECK(MPI_Allgather(&world_rank_, 1, MPI_INT, locals_.data(), 1, MPI_INT, node));
  if (node_size > 1) share(node);
  if (own_ == nullptr) {
    private_row_ = std::make_unique<StatusRow>();
    own_ = private_row_.get();
    rows_ = {own_};
    locals_ = {world_rank_};
  }

  RankFacts own;
  std::memcpy(own.host.data(), host.data(), std::min(host.size(), own.host.size() - 1));
  own.process = own_process();
  own.node = locals_.front();
  facts_.resize(static_cast<std::size_t>(world_size));
  const int bytes = static_cast<int>(sizeof own);
  CONVOY_MPI_CHECK(MPI_Allgather(&own, bytes, MPI_BYTE, facts_.data(), bytes, MPI_BYTE, MPI_COMM_WORLD));
}

// Sets the rows, on all ranks of the node or on none of them.
void NodeBoard::share(MPI_Comm node) {
  void* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  int works = MPI_Win_allocate_shared(kSegment, 1, MPI_INFO_NULL, node, &memory, &window) == MPI_SUCCESS ? 1 : 0;
  std::vector<StatusRow*> rows;
  for (std::size_t i = 0; works != 0 && i < locals_.size(); ++i) {
    MPI_Aint size = 0;
    int unit = 0;
    void* start = nullptr;
    if (MPI_Win_shared_query(window, static_cast<int>(i), &size, &unit, &start) != MPI_SUCCESS) works = 0;
    rows.push_back(static_cast<StatusRow*>(aligned(start)));
  }
  int all_work = 0;
  CONVOY_MPI_CHECK(MPI_Allreduce(&works, &all_work, 1, MPI_INT, MPI_MIN, node));
  if (all_work == 0) return;
  window_ = window;
  own_ = new (aligned(memory)) StatusRow();
  rows_ = std::move(rows);
  CONVOY_MPI_CHECK(MPI_Barrier(node));  // no rank reads a row before it exists
}

void NodeBoard::free() {
  if (window_ != MPI_WIN_NULL) CONVOY_MPI_CHECK(MPI_Win_free(&window_));
}

}  // namespace convoy
