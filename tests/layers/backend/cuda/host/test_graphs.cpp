// SPDX-License-Identifier: Apache-2.0
//
// The stand-in's captures and graphs themselves: forks and joins, and what a capture forbids.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "tests/layers/backend/cuda/host/scheduler.h"
#include "tests/layers/backend/cuda/host/streams.h"

using namespace convoy::on_host;

namespace {

struct Capturing {
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t before = nullptr, forked = nullptr, joined = nullptr;
  cudaGraph_t graph = nullptr;
  std::string log;

  Capturing() {
    for (cudaStream_t* each : {&a, &b}) cudaStreamCreateWithFlags(each, cudaStreamNonBlocking);
    for (cudaEvent_t* each : {&before, &forked, &joined}) cudaEventCreateWithFlags(each, cudaEventDisableTiming);
    cudaEventRecord(before, a);
    CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  }
  ~Capturing() {
    for (cudaEvent_t each : {before, forked, joined}) cudaEventDestroy(each);
    for (cudaStream_t each : {a, b}) cudaStreamDestroy(each);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

  void put(cudaStream_t stream, char name) {
    CHECK(enqueue(stream, "test", [this, name] { log += name; }) == cudaSuccess);
  }
  void fork() const {
    CHECK(cudaEventRecord(forked, a) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(b, forked, 0) == cudaSuccess);
  }
  void join() const {
    CHECK(cudaEventRecord(joined, b) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(a, joined, 0) == cudaSuccess);
  }
  [[nodiscard]] cudaStreamCaptureStatus status(cudaStream_t stream) const {
    cudaStreamCaptureStatus found{};
    CHECK(cudaStreamIsCapturing(stream, &found) == cudaSuccess);
    return found;
  }
  /// A call that ends what is captured.
  void check_refused(cudaError_t result, cudaError_t expected) {
    CHECK(result == expected);
    CHECK(status(a) == cudaStreamCaptureStatusInvalidated);
    CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    CHECK(status(a) == cudaStreamCaptureStatusNone);
    put(a, 'x');
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    CHECK(log == "x");
  }
};

}  // namespace

TEST_CASE_FIXTURE(Capturing, "a graph of two streams runs as often as it is launched, forks in any order") {
  put(a, '1');
  fork();
  put(a, '2');
  put(b, 'x');
  CHECK(status(b) == cudaStreamCaptureStatusActive);
  join();
  put(a, '3');
  CHECK(cudaStreamEndCapture(a, &graph) == cudaSuccess);
  CHECK(status(b) == cudaStreamCaptureStatusNone);
  CHECK(log.empty());
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiateWithFlags(&executable, graph, 0) == cudaSuccess);
  int first = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Scheduler::instance().seed(seed);
    log.clear();
    CHECK(cudaGraphLaunch(executable, a) == cudaSuccess);
    CHECK(cudaGraphLaunch(executable, b) == cudaSuccess);  // behind the launch before, though on another stream
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    REQUIRE(log.size() == 8);
    for (const std::string& one : {log.substr(0, 4), log.substr(4)}) {
      CHECK((one == "12x3" || one == "1x23"));
      first += one == "1x23" ? 1 : 0;
    }
  }
  CHECK(first > 0);
  CHECK(first < 100);
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
}

TEST_CASE_FIXTURE(Capturing, "a fork that is not joined is an error at the end") {
  fork();
  put(b, '1');
  CHECK(cudaStreamEndCapture(b, &graph) == cudaErrorStreamCaptureUnmatched);
  CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated);  // by the call before
  CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  fork();
  put(b, '1');
  CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(graph == nullptr);
}

TEST_CASE_FIXTURE(Capturing, "an event of the capture must not be queried") {
  fork();
  check_refused(cudaEventQuery(forked), cudaErrorCapturedEvent);
}

TEST_CASE_FIXTURE(Capturing,
                  "an event of a capture that is over must not be queried or waited for until it is recorded") {
  fork();
  put(b, '1');
  join();
  CHECK(cudaStreamEndCapture(a, &graph) == cudaSuccess);
  CHECK(cudaEventQuery(joined) == cudaErrorCapturedEvent);
  CHECK(cudaStreamWaitEvent(a, joined, 0) == cudaErrorCapturedEvent);
  CHECK(cudaEventRecord(joined, a) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(b, joined, 0) == cudaSuccess);
}

TEST_CASE_FIXTURE(Capturing, "captured streams must not be waited for by the host") {
  check_refused(cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
}

TEST_CASE_FIXTURE(Capturing, "a capture must not wait for work before it but by its stream") {
  check_refused(cudaStreamWaitEvent(a, before, 0), cudaErrorStreamCaptureIsolation);
}

TEST_CASE_FIXTURE(Capturing, "other memory of the host cannot be part of a copy in a graph") {
  float value = 0;
  void* device = nullptr;
  CHECK(cudaMalloc(&device, sizeof(value)) == cudaSuccess);  // relaxed: allowed
  check_refused(cudaMemcpyAsync(device, &value, sizeof(value), cudaMemcpyHostToDevice, a),
                cudaErrorStreamCaptureUnsupported);
  CHECK(cudaFree(device) == cudaSuccess);
}

TEST_CASE_FIXTURE(Capturing, "two captures cannot be merged") {
  CHECK(cudaStreamBeginCapture(b, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaEventRecord(forked, b) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(a, forked, 0) == cudaErrorStreamCaptureMerge);
  CHECK(cudaStreamEndCapture(b, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated);
}
