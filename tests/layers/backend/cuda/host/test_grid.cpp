// SPDX-License-Identifier: Apache-2.0
//
// The grid on the host itself: it runs every thread once, and shows what is wrong with a kernel.
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using convoy::on_host::failure;
using convoy::on_host::set_order;

template <class... Parameters>
cudaError_t launch(dim3 grid, dim3 block, void (*kernel)(Parameters...),
                   std::type_identity_t<Parameters>... arguments) {
  static cudaStream_t stream = nullptr;
  if (stream == nullptr) REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  void* addresses[] = {&arguments...};
  const cudaError_t status = cudaLaunchKernel(kernel, grid, block, addresses, 0, stream);
  return status != cudaSuccess ? status : cudaStreamSynchronize(stream);
}

unsigned thread_of_block() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
unsigned block_of_grid() { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }

void count_kernel(int* counts, int* total, std::vector<unsigned>* order) {
  const unsigned index = block_of_grid() * block_threads() + thread_of_block();
  ++counts[index];
  atomicAdd(total, 1);
  order->push_back(index);
}

std::vector<unsigned> order_of_seed(std::uint64_t seed) {
  set_order(seed);
  std::vector<int> counts(3 * 2 * 2 * 5 * 3 * 4);
  std::vector<unsigned> order;
  int total = 0;
  CHECK(launch(dim3(3, 2, 2), dim3(5, 3, 4), count_kernel, counts.data(), &total, &order) == cudaSuccess);
  CHECK(counts == std::vector<int>(counts.size(), 1));
  CHECK(total == static_cast<int>(counts.size()));
  return order;
}

/// Sets out to the block's values in reverse, by way of shared memory.
template <bool kBarrier>
void reverse_kernel(const float* in, float* out) {
  CONVOY_SHARED(float, values, [256]);
  const unsigned first = blockIdx.x * 256, i = threadIdx.x;
  values[i] = in[first + i];
  if (kBarrier) __syncthreads();
  out[first + i] = values[255 - i];
}

template <bool kBarrier>
std::vector<float> reversed() {
  std::vector<float> in(512), out(512);
  std::iota(in.begin(), in.end(), 0.0F);
  CHECK(launch(2, 256, reverse_kernel<kBarrier>, in.data(), out.data()) == cudaSuccess);
  return out;
}

void unwritten_kernel(float* out) {
  CONVOY_SHARED(float, values, [2]);
  if (threadIdx.x == 0) values[0] = 1;
  __syncthreads();
  out[blockIdx.x * 2 + threadIdx.x] = values[threadIdx.x];
}

void shuffle_kernel(float* down, double* sum) {
  const auto lane = static_cast<float>(threadIdx.x);
  down[thread_of_block()] = __shfl_down_sync(0xffffffffU, lane, 3);
  double value = lane;
  for (unsigned flipped = 16; flipped > 0; flipped /= 2) value += __shfl_xor_sync(0xffffffffU, value, flipped);
  sum[thread_of_block()] = value;
}

void some_wait_kernel(unsigned waiting) {
  if (threadIdx.x < waiting) __syncthreads();
}

void half_a_warp_kernel(int first) {
  if (first == 1 || threadIdx.x % 2 == 0) __syncwarp();
}

void two_barriers_kernel(unsigned first) {
  if (threadIdx.x % 2 == first) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

[[maybe_unused]] void write_kernel(float* data, int at) { data[at] = 1; }

}  // namespace

TEST_CASE("every thread of a grid runs once, in an order that the seed decides") {
  const std::vector<unsigned> first = order_of_seed(1);
  CHECK(order_of_seed(1) == first);
  CHECK(order_of_seed(2) != first);
  CHECK_FALSE(std::is_sorted(first.begin(), first.end()));
}

TEST_CASE("a missing barrier shows up") {
  std::vector<float> expected(512);
  for (int i = 0; i < 512; ++i)
    expected[static_cast<std::size_t>(i)] = static_cast<float>(i / 256 * 256 + 255 - i % 256);
  CHECK(reversed<true>() == expected);
  const std::vector<float> wrong = reversed<false>();
  CHECK(std::any_of(wrong.begin(), wrong.begin() + 256, [](float value) { return std::isnan(value); }));
  CHECK(std::any_of(wrong.begin() + 256, wrong.end(), [](float value) { return std::isnan(value); }));
}

TEST_CASE("shared memory is NaN when a block begins") {
  std::vector<float> out(6);
  CHECK(launch(3, 2, unwritten_kernel, out.data()) == cudaSuccess);
  for (std::size_t block = 0; block < 3; ++block) {
    CHECK(out[2 * block] == 1);
    CHECK(std::isnan(out[2 * block + 1]));
  }
}

TEST_CASE("lanes of a warp exchange values") {
  std::vector<float> down(128);
  std::vector<double> sum(128);
  CHECK(launch(1, dim3(32, 4), shuffle_kernel, down.data(), sum.data()) == cudaSuccess);
  for (std::size_t i = 0; i < 128; ++i) {
    const std::size_t lane = i % 32;
    CHECK(down[i] == static_cast<float>(lane < 29 ? lane + 3 : lane));  // beyond the warp: its own
    CHECK(sum[i] == 496);
  }
}

TEST_CASE("threads that have ended are not waited for") {
  CHECK(launch(2, 64, some_wait_kernel, 64U) == cudaSuccess);
  CHECK(launch(2, 64, some_wait_kernel, 3U) == cudaSuccess);
}

TEST_CASE("threads that wait in vain are an error with the place, and the next launch works") {
  CHECK(launch(2, 64, half_a_warp_kernel, 0) == cudaErrorLaunchFailure);
  CHECK(std::string(failure()).find("wait for others") != std::string::npos);
  CHECK(std::string(failure()).find("test_grid.cpp:") != std::string::npos);
  reversed<true>();
  CHECK(launch(2, 64, two_barriers_kernel, 0) == cudaErrorLaunchFailure);
  CHECK(std::string(failure()).find("while another waits at test_grid.cpp:") != std::string::npos);
  reversed<true>();
}

TEST_CASE("blocks that no GPU takes are refused") {
  CHECK(launch(1, 1024, half_a_warp_kernel, 1) == cudaSuccess);
  CHECK(launch(1, 1025, half_a_warp_kernel, 1) == cudaErrorInvalidConfiguration);
  CHECK(launch(0, 32, half_a_warp_kernel, 1) == cudaErrorInvalidConfiguration);
  CHECK(launch(dim3(1, 65536), 32, half_a_warp_kernel, 1) == cudaErrorInvalidConfiguration);
}

#ifndef CONVOY_ADDRESS_SANITIZER  // which ends the program there
TEST_CASE("a kernel that writes beyond a block of memory is an error") {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 3 * sizeof(float)) == cudaSuccess);
  auto* data = static_cast<float*>(memory);
  CHECK(std::isnan(data[2]));
  CHECK(launch(1, 1, write_kernel, data, 2) == cudaSuccess);
  for (const int at : {3, -1}) {
    CHECK(launch(1, 1, write_kernel, data, at) == cudaErrorLaunchFailure);
    CHECK(std::string(failure()).find(at < 0 ? "before a block of 12 bytes" : "behind a block of 12 bytes") !=
          std::string::npos);
    CHECK(launch(1, 1, write_kernel, data, 0) == cudaSuccess);
  }
  CHECK(cudaFree(data) == cudaSuccess);
}
#endif
