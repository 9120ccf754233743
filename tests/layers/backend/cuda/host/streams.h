// SPDX-License-Identifier: Apache-2.0
//
// Streams of the imitated device, and how work is put on them. A stream is the last piece of its work, which the next
// one waits for; while it is captured, the nodes of the graph that the next one comes behind.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/layers/backend/cuda/host/scheduler.h"

namespace convoy::on_host {

/// A graph that is being captured, or is complete.
struct Graph {
  struct Node {
    int lane;
    std::string name;
    std::shared_ptr<const Work> work;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes;
  CUstream_st* origin = nullptr;      ///< the stream that the capture began on
  std::vector<CUstream_st*> streams;  ///< under capture; empty when it is over
  bool invalid = false;               ///< a call was made that a capture forbids

  [[nodiscard]] bool open() const { return !streams.empty(); }
};

/// Puts work on a stream, or into the graph that it is captured into.
cudaError_t enqueue(cudaStream_t stream, const std::string& name, Work work);
/// Work that ends when it is called.
cudaError_t enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work);

/// For who holds the scheduler's lock.
cudaError_t enqueue_locked(cudaStream_t stream, const std::string& name, Work work);

/// Notes a call that a capture forbids, and returns its error.
cudaError_t invalidate(Graph& graph, cudaError_t error);

}  // namespace convoy::on_host

struct CUstream_st {
  int lane = 0;
  convoy::on_host::WorkId last = 0;
  std::vector<convoy::on_host::WorkId> waits;     ///< for events, of what comes next
  std::shared_ptr<convoy::on_host::Graph> graph;  ///< null: not captured
  std::vector<std::size_t> tips;                  ///< nodes of it that the next one comes behind

  /// What the next piece of work waits for.
  [[nodiscard]] std::vector<convoy::on_host::WorkId> take_waits();
};

struct CUevent_st {
  convoy::on_host::WorkId work = 0;  ///< behind which it was recorded last; 0: it never was
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
  std::shared_ptr<convoy::on_host::Graph> graph;  ///< null: the last record was not captured
  std::vector<std::size_t> tips;                  ///< what it stands behind in that graph
};
