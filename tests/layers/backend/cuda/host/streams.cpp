// SPDX-License-Identifier: Apache-2.0
//
// Streams and events of the CUDA runtime.
#include "tests/layers/backend/cuda/host/streams.h"

#include <algorithm>
#include <mutex>
#include <ratio>
#include <utility>

namespace convoy::on_host {

namespace {

using Clock = std::chrono::steady_clock;

Scheduler& scheduler() { return Scheduler::instance(); }

void join(std::vector<std::size_t>& tips, const std::vector<std::size_t>& others) {
  for (const std::size_t node : others) {
    if (std::find(tips.begin(), tips.end(), node) == tips.end()) tips.push_back(node);
  }
}

WorkId put(cudaStream_t stream, const std::string& name, Work work) {
  stream->last =
      scheduler().add(stream->lane, name, std::make_shared<const Work>(std::move(work)), stream->take_waits());
  scheduler().run_eager();
  return stream->last;
}

}  // namespace

cudaError_t invalidate(Graph& graph, cudaError_t error) {
  if (graph.open()) graph.invalid = true;
  return error;
}

cudaError_t enqueue(cudaStream_t stream, const std::string& name, Work work) {
  const std::lock_guard lock(scheduler().mutex);
  return enqueue_locked(stream, name, std::move(work));
}

cudaError_t enqueue_locked(cudaStream_t stream, const std::string& name, Work work) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;  // the stream of that name is not imitated
  if (stream->graph != nullptr) {
    Graph& graph = *stream->graph;
    if (graph.invalid) return cudaErrorStreamCaptureInvalidated;
    graph.nodes.push_back({stream->lane, name, std::make_shared<const Work>(std::move(work)), stream->tips});
    stream->tips = {graph.nodes.size() - 1};
    return cudaSuccess;
  }
  if (const cudaError_t error = scheduler().take_error(); error != cudaSuccess) return error;
  put(stream, name, std::move(work));
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work) {
  return enqueue(stream, name, Work([work = std::move(work)](std::shared_ptr<void>&) {
                   work();
                   return Progress::kDone;
                 }));
}

}  // namespace convoy::on_host

using namespace convoy::on_host;

std::vector<WorkId> CUstream_st::take_waits() {
  std::vector<WorkId> all = std::exchange(waits, {});
  all.push_back(last);
  return all;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const std::lock_guard lock(scheduler().mutex);
  if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
  *stream = new CUstream_st{};
  (*stream)->lane = scheduler().new_lane();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int /*priority*/) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

// What is on it runs nevertheless.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(scheduler().mutex);
  if (stream->graph != nullptr) {
    invalidate(*stream->graph, cudaSuccess);
    std::erase(stream->graph->streams, stream);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::unique_lock lock(scheduler().mutex);
  if (stream->graph != nullptr) return invalidate(*stream->graph, cudaErrorStreamCaptureUnsupported);
  const WorkId last =
      scheduler().add(stream->lane, "synchronize", std::make_shared<const Work>(), stream->take_waits());
  stream->last = last;
  return scheduler().synchronize(lock, "cudaStreamSynchronize", last);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(scheduler().mutex);
  const Graph* graph = stream->graph.get();
  *status = graph == nullptr ? cudaStreamCaptureStatusNone
            : graph->invalid ? cudaStreamCaptureStatusInvalidated
                             : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

// Waits for the record that is the last one now. One that is made later does not count, an event without one neither.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  const std::lock_guard lock(scheduler().mutex);
  Graph* const captured = stream->graph.get();
  if (captured != nullptr && captured->invalid) return cudaErrorStreamCaptureInvalidated;
  if (event->graph == nullptr) {
    if (captured != nullptr) return invalidate(*captured, cudaErrorStreamCaptureIsolation);
    stream->waits.push_back(event->work);
    return cudaSuccess;
  }
  Graph& graph = *event->graph;
  if (!graph.open()) {
    return captured != nullptr ? invalidate(*captured, cudaErrorStreamCaptureIsolation) : cudaErrorCapturedEvent;
  }
  if (graph.invalid) return cudaErrorStreamCaptureInvalidated;
  if (captured != nullptr && captured != &graph) {
    invalidate(graph, cudaErrorStreamCaptureMerge);
    return invalidate(*captured, cudaErrorStreamCaptureMerge);
  }
  if (captured == nullptr) {
    stream->graph = event->graph;
    stream->tips.clear();
    graph.streams.push_back(stream);
  }
  join(stream->tips, event->tips);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st{};
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(scheduler().mutex);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(scheduler().mutex);
  event->graph = stream->graph;
  if (stream->graph != nullptr) {
    if (stream->graph->invalid) return cudaErrorStreamCaptureInvalidated;
    event->tips = stream->tips;
    return cudaSuccess;
  }
  event->time = std::make_shared<Clock::time_point>();
  event->work = put(stream, "event", [time = event->time](std::shared_ptr<void>&) {
    *time = Clock::now();
    return Progress::kDone;
  });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(scheduler().mutex);
  if (event->graph != nullptr) return invalidate(*event->graph, cudaErrorCapturedEvent);
  const bool done = scheduler().asked(event->work);
  if (const cudaError_t error = scheduler().take_error(); error != cudaSuccess) return error;
  return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const std::lock_guard lock(scheduler().mutex);
  for (const cudaEvent_t event : {start, end}) {
    if (event->graph != nullptr) return invalidate(*event->graph, cudaErrorCapturedEvent);
    if (event->time == nullptr) return cudaErrorInvalidResourceHandle;
    if (!scheduler().done(event->work)) return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
  return cudaSuccess;
}
