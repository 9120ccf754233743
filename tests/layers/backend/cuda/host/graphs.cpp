// SPDX-License-Identifier: Apache-2.0
//
// Capture of streams into graphs, and graphs of the CUDA runtime. A graph that is launched becomes ordinary work: its
// nodes wait for those before them and no longer for their neighbours on the streams that they were captured on.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/layers/backend/cuda/host/streams.h"

using namespace convoy::on_host;

struct CUgraph_st {
  std::vector<Graph::Node> nodes;
};
struct CUgraphExec_st {
  std::vector<Graph::Node> nodes;
  std::vector<int> lanes;  // of the nodes
  WorkId last = 0;         // of the launch before, which the next one comes behind
};

namespace {

Scheduler& scheduler() { return Scheduler::instance(); }

std::shared_ptr<const Work> nothing() {
  static const auto work = std::make_shared<const Work>();
  return work;
}

// Whether the origin has joined all other streams: every node comes before what it would do next.
bool joined(const Graph& graph) {
  std::vector<bool> before(graph.nodes.size());
  std::vector<std::size_t> left = graph.origin->tips;
  while (!left.empty()) {
    const std::size_t node = left.back();
    left.pop_back();
    if (before[node]) continue;
    before[node] = true;
    left.insert(left.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return std::find(before.begin(), before.end(), false) == before.end();
}

}  // namespace

// Relaxed: calls that have nothing to do with what is captured are allowed.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(scheduler().mutex);
  if (mode != cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;  // others are not imitated
  if (stream->graph != nullptr) return cudaErrorIllegalState;
  stream->graph = std::make_shared<Graph>();
  stream->graph->origin = stream;
  stream->graph->streams = {stream};
  stream->tips.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* result) {
  const std::lock_guard lock(scheduler().mutex);
  *result = nullptr;
  if (stream->graph == nullptr) return cudaErrorIllegalState;
  const std::shared_ptr<Graph> graph = stream->graph;
  if (graph->origin != stream) return invalidate(*graph, cudaErrorStreamCaptureUnmatched);
  const bool complete = joined(*graph);
  for (CUstream_st* each : std::exchange(graph->streams, {})) each->graph = nullptr;
  if (graph->invalid || !complete) graph->nodes.clear();
  if (graph->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!complete) return cudaErrorStreamCaptureUnjoined;
  *result = new CUgraph_st{std::move(graph->nodes)};  // events may keep the rest
  return cudaSuccess;
}

// The executable graph has copies of the nodes.
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long /*flags*/) {
  const std::lock_guard lock(scheduler().mutex);
  auto* made = new CUgraphExec_st{graph->nodes, {}, 0};
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) made->lanes.push_back(scheduler().new_lane());
  *executable = made;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
// A launch that is under way goes on.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const std::lock_guard lock(scheduler().mutex);
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::lock_guard lock(scheduler().mutex);
  if (stream->graph != nullptr) return invalidate(*stream->graph, cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t error = scheduler().take_error(); error != cudaSuccess) return error;
  std::vector<WorkId> before = stream->take_waits();
  before.push_back(executable->last);
  const WorkId begin = scheduler().add(stream->lane, "begin of a graph", nothing(), before);
  std::vector<WorkId> ids;
  for (const Graph::Node& node : executable->nodes) {
    std::vector<WorkId> after{begin};
    for (const std::size_t other : node.after) after.push_back(ids[other]);
    ids.push_back(scheduler().add(executable->lanes[ids.size()], node.name, node.work, after));
  }
  ids.push_back(begin);
  stream->last = executable->last = scheduler().add(stream->lane, "end of a graph", nothing(), ids);
  scheduler().run_eager();
  return cudaSuccess;
}
