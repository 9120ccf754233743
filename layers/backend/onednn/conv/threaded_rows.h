// SPDX-License-Identifier: Apache-2.0
//
// A product of rows in which each thread computes some of the rows. Private to layers/backend/onednn.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// By how many threads these rows are divided: 1 where a thread would have too few to read the weight for.
[[nodiscard]] int row_threads(std::int64_t rows);

/// Where the rows of a thread begin.
constexpr std::int64_t first_row(std::int64_t rows, std::int64_t thread, std::int64_t threads) {
  return rows * thread / threads;
}

/// y [rows, out] of x [rows, in], or dx of dy, float32. oneDNN 2.6's float32 product on several threads divides a sum
/// over many inputs instead, and adds up the parts: 1024 rows of 1024 inputs and 256 outputs took 3.15 ms on two
/// threads of Zen 4, and take 2.5 ms.
class ThreadedRows final : public Direction {
 public:
  /// parts: products of the rows of each thread, made for one thread. from, to: which arguments of theirs x and y are.
  ThreadedRows(OnednnState& state, std::vector<BoundPrimitive> parts, const dnnl::memory::desc& weights, int from,
               int to);
  void run(OnednnState& state, Backend& backend, const Tensor& from, void* weight, void* bias,
           const Tensor& to) override;

 private:
  struct Part {
    dnnl::stream stream;
    BoundPrimitive product;
  };
  std::vector<Part> parts_;
  int from_, to_;
};

}  // namespace convoy
