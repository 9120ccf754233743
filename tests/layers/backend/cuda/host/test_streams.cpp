// SPDX-License-Identifier: Apache-2.0
//
// The stand-in's streams, events and memory themselves: what is ordered stays in order, what is not shows up.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/layers/backend/cuda/host/grid.h"
#include "tests/layers/backend/cuda/host/scheduler.h"
#include "tests/layers/backend/cuda/host/streams.h"

using namespace convoy::on_host;

namespace {

constexpr std::uint64_t kSeeds = 50;

struct Streams {
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  std::string log;

  Streams() {
    for (cudaStream_t* each : {&a, &b}) cudaStreamCreateWithFlags(each, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
  ~Streams() {
    finish();
    cudaEventDestroy(event);
    for (cudaStream_t each : {a, b}) cudaStreamDestroy(each);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  void put(cudaStream_t stream, char name) {
    REQUIRE(enqueue(stream, "test", [this, name] { log += name; }) == cudaSuccess);
  }
  void finish() const {
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
  }
};

/// How many of the seeds lead to each log of `body`.
template <class Body>
std::vector<std::string> logs(const Body& body) {
  std::vector<std::string> all;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scheduler::instance().seed(seed);
    Streams streams;
    body(streams);
    streams.finish();
    all.push_back(streams.log);
  }
  return all;
}

bool in_order(const std::string& log, const std::string& names) {
  std::size_t at = 0;
  for (const char name : names) {
    at = log.find(name, at);
    if (at == std::string::npos) return false;
  }
  return true;
}

template <class Wanted>
std::size_t count(const std::vector<std::string>& all, const Wanted& wanted) {
  std::size_t found = 0;
  for (const std::string& log : all) found += wanted(log) ? 1 : 0;
  return found;
}

}  // namespace

TEST_CASE("a stream keeps its order, two streams have any") {
  const auto all = logs([](Streams& s) {
    for (const char name : {'1', '2', '3'}) s.put(s.a, name);
    for (const char name : {'x', 'y', 'z'}) s.put(s.b, name);
  });
  CHECK(count(all, [](const std::string& log) { return in_order(log, "123") && in_order(log, "xyz"); }) == kSeeds);
  CHECK(count(all, [](const std::string& log) { return log == "123xyz"; }) > 0);
  CHECK(count(all, [](const std::string& log) { return log == "xyz123"; }) > 0);
  CHECK(all == logs([](Streams& s) {
          for (const char name : {'1', '2', '3'}) s.put(s.a, name);
          for (const char name : {'x', 'y', 'z'}) s.put(s.b, name);
        }));
}

TEST_CASE("a wait for an event is a wait for its last record before the wait") {
  const auto waits = logs([](Streams& s) {
    s.put(s.a, '1');
    CHECK(cudaEventRecord(s.event, s.a) == cudaSuccess);
    s.put(s.a, '2');
    CHECK(cudaStreamWaitEvent(s.b, s.event, 0) == cudaSuccess);
    CHECK(cudaEventRecord(s.event, s.a) == cudaSuccess);
    s.put(s.b, 'x');
  });
  CHECK(count(waits, [](const std::string& log) { return in_order(log, "1x"); }) == kSeeds);
  CHECK(count(waits, [](const std::string& log) { return in_order(log, "x2"); }) > 0);
}

TEST_CASE("an event that was never recorded holds nothing up, and is over") {
  const auto all = logs([](Streams& s) {
    CHECK(cudaEventQuery(s.event) == cudaSuccess);
    s.put(s.a, '1');
    CHECK(cudaStreamWaitEvent(s.b, s.event, 0) == cudaSuccess);
    s.put(s.b, 'x');
  });
  CHECK(count(all, [](const std::string& log) { return log == "x1"; }) > 0);
}

TEST_CASE("work has not always begun when the host asks, and the answer does not change back") {
  int late = 0;
  const auto all = logs([&](Streams& s) {
    s.put(s.a, '1');
    CHECK(cudaEventRecord(s.event, s.a) == cudaSuccess);
    cudaError_t status = cudaErrorNotReady;
    for (int asked = 0; (status = cudaEventQuery(s.event)) != cudaSuccess; ++asked) {
      CHECK(status == cudaErrorNotReady);
      late += asked == 0 ? 1 : 0;
    }
    CHECK(s.log == "1");
    CHECK(cudaEventQuery(s.event) == cudaSuccess);
  });
  CHECK(late > 0);
}

TEST_CASE("pinned memory is read when a copy runs, other memory of the host when it is put on the stream") {
  void *device = nullptr, *memory = nullptr;
  REQUIRE(cudaMalloc(&device, 2 * sizeof(float)) == cudaSuccess);
  REQUIRE(cudaHostAlloc(&memory, sizeof(float), cudaHostAllocDefault) == cudaSuccess);
  auto* const pinned = static_cast<float*>(memory);
  CHECK(std::isnan(*pinned));
  int too_late = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scheduler::instance().seed(seed);
    const Streams s;
    float plain = *pinned = 1;
    auto* const to = static_cast<float*>(device);
    CHECK(cudaMemcpyAsync(to, pinned, sizeof(float), cudaMemcpyHostToDevice, s.a) == cudaSuccess);
    CHECK(cudaMemcpyAsync(to + 1, &plain, sizeof(float), cudaMemcpyHostToDevice, s.a) == cudaSuccess);
    plain = *pinned = 2;
    s.finish();
    CHECK(to[1] == 1);
    too_late += to[0] == 2 ? 1 : 0;
  }
  CHECK(too_late > 0);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaFree(device) == cudaErrorInvalidValue);
}

TEST_CASE("a copy to memory that is freed before it runs is an error of the next wait, with the seed") {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scheduler::instance().seed(seed);
    const Streams s;
    void* device = nullptr;
    REQUIRE(cudaMalloc(&device, 64) == cudaSuccess);
    CHECK(cudaMemsetAsync(device, 0, 64, s.a) == cudaSuccess);
    CHECK(cudaFree(device) == cudaSuccess);
    if (cudaStreamSynchronize(s.a) == cudaSuccess) continue;  // cudaFree() waited
    ++found;
    CHECK(std::string(failure()).find("a memset of 64 bytes which are no memory, or were freed") != std::string::npos);
    CHECK(std::string(failure()).find("CONVOY_ORDER_SEED=" + std::to_string(seed)) != std::string::npos);
  }
  CHECK(found > 0);
}

#ifndef CONVOY_ADDRESS_SANITIZER  // which ends the program there
TEST_CASE("what is written into freed memory is found") {
  const Streams s;
  void *device = nullptr, *large = nullptr;
  REQUIRE(cudaMalloc(&device, 64) == cudaSuccess);
  REQUIRE(cudaMalloc(&large, std::size_t{20} << 20) == cudaSuccess);
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(std::isnan(*static_cast<float*>(device)));
  static_cast<float*>(device)[3] = 1;
  CHECK(cudaFree(large) == cudaSuccess);  // drives the small one out of the memory that is kept
  CHECK(cudaStreamSynchronize(s.a) == cudaErrorLaunchFailure);
  CHECK(std::string(failure()).find("64 bytes of device memory after they were freed") != std::string::npos);
}
#endif
