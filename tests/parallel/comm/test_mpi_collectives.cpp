// SPDX-License-Identifier: Apache-2.0
//
// Collectives over tensors, with sums that are exact, for each element type and root.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "parallel/comm/mpi_communicator.h"
#include "tests/parallel/mpi_fixture.h"

namespace convoy {

namespace {

constexpr std::int64_t kCount = 1003;

template <class T>
Tensor numbers(TestTensors& tensors, DType dtype, int rank, std::int64_t count = kCount) {
  Tensor result = tensors.tensor({count}, dtype);
  for (std::int64_t i = 0; i < count; ++i) result.data<T>()[i] = static_cast<T>(sample_value(rank, i));
  return result;
}

// What reducing numbers() over all ranks gives at one place.
template <class T>
T reduced(int size, std::int64_t index, ReduceOp op) {
  int result = sample_value(0, index);
  for (int rank = 1; rank < size; ++rank) {
    const int value = sample_value(rank, index);
    if (op == ReduceOp::kSum) result += value;
    if (op == ReduceOp::kMax) result = std::max(result, value);
    if (op == ReduceOp::kMin) result = std::min(result, value);
  }
  return static_cast<T>(result);
}

template <class T>
bool holds(const Tensor& tensor, const std::function<T(std::int64_t)>& expected) {
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.data<T>()[i] != expected(i)) return false;
  }
  return true;
}

template <class T>
void check_type(MpiFixture& f, DType dtype) {
  CAPTURE(dtype_name(dtype));
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    const Tensor all = numbers<T>(f.tensors, dtype, f.rank);
    f.comm->all_reduce(all, op, "all")->wait();
    CHECK(holds<T>(all, [&](std::int64_t i) { return reduced<T>(f.size, i, op); }));

    for (int root = 0; root < f.size; ++root) {
      const Tensor one = numbers<T>(f.tensors, dtype, f.rank);
      f.comm->reduce(one, op, root, "one")->wait();
      CHECK(holds<T>(one, [&](std::int64_t i) {
        return f.rank == root ? reduced<T>(f.size, i, op) : static_cast<T>(sample_value(f.rank, i));
      }));
    }
  }
  for (int root = 0; root < f.size; ++root) {
    const Tensor copy = numbers<T>(f.tensors, dtype, f.rank);
    f.comm->broadcast(copy, root, "copy")->wait();
    CHECK(holds<T>(copy, [&](std::int64_t i) { return static_cast<T>(sample_value(root, i)); }));
  }
}

}  // namespace

TEST_CASE_FIXTURE(MpiFixture, "all_reduce, reduce and broadcast of every element type") {
  check_type<float>(*this, DType::kF32);
  check_type<double>(*this, DType::kF64);
  check_type<std::int64_t>(*this, DType::kI64);
  check_type<std::uint8_t>(*this, DType::kU8);
}

TEST_CASE_FIXTURE(MpiFixture, "bfloat16 travels, but is not added") {
  const Tensor half = numbers<std::uint16_t>(tensors, DType::kBF16, rank);
  comm->broadcast(half, size - 1, "bits")->wait();
  CHECK(holds<std::uint16_t>(half,
                             [&](std::int64_t i) { return static_cast<std::uint16_t>(sample_value(size - 1, i)); }));
  CHECK(contains(error_of([&] { comm->all_reduce(half, ReduceOp::kSum, "halves"); }), "all_reduce 'halves'"));
  CHECK(contains(error_of([&] { comm->reduce(half, ReduceOp::kSum, 0, "halves"); }), "float32"));
}

TEST_CASE_FIXTURE(MpiFixture, "scatter and gather cut the first axis, from every root") {
  for (int root = 0; root < size; ++root) {
    CAPTURE(root);
    Tensor whole;
    if (rank == root) {
      whole = numbers<float>(tensors, DType::kF32, root, 2 * size * 5).reshaped({2 * size, 5});
    }
    const Tensor part = tensors.tensor({2, 5}, DType::kF32);
    comm->scatter(whole, part, root, "samples")->wait();
    CHECK(holds<float>(part, [&](std::int64_t i) { return static_cast<float>(sample_value(root, rank * 10 + i)); }));

    for (std::int64_t i = 0; i < part.size(); ++i) part.data<float>()[i] += static_cast<float>(100 * rank);
    if (rank == root) std::memset(whole.raw(), 0, whole.bytes());
    comm->gather(part, whole, root, "outputs")->wait();
    if (rank == root) {
      CHECK(holds<float>(whole, [&](std::int64_t i) {
        const std::int64_t owner = i / 10;
        return static_cast<float>(sample_value(root, i) + 100 * owner);
      }));
    }
  }
}

TEST_CASE_FIXTURE(MpiFixture, "all_gather joins parts in rank order, reduce_scatter divides sums") {
  const Tensor part = numbers<std::int64_t>(tensors, DType::kI64, rank, 6);
  const Tensor all = tensors.tensor({6 * size}, DType::kI64);
  comm->all_gather(part, all, "labels")->wait();
  CHECK(holds<std::int64_t>(
      all, [](std::int64_t i) { return static_cast<std::int64_t>(sample_value(static_cast<int>(i / 6), i % 6)); }));

  const Tensor whole = numbers<float>(tensors, DType::kF32, rank, 6 * size), sum = tensors.tensor({6}, DType::kF32);
  comm->reduce_scatter(whole, sum, "gradients")->wait();
  CHECK(holds<float>(sum, [&](std::int64_t i) {
    double expected = 0;
    for (int other = 0; other < size; ++other) expected += sample_value(other, 6 * rank + i);
    return static_cast<float>(expected);
  }));
  CHECK(contains(error_of([&] { comm->all_gather(sum, all, "uneven"); }), "'uneven'"));
  CHECK(contains(error_of([&] { comm->reduce_scatter(part, sum, "uneven"); }), "'uneven'"));
}

TEST_CASE_FIXTURE(MpiFixture, "a root may scatter and gather in place") {
  const int root = size - 1;
  const Tensor whole = numbers<float>(tensors, DType::kF32, root, 3 * size);
  const Tensor part = rank == root ? whole.view(3 * rank, {3}) : tensors.tensor({3}, DType::kF32);
  comm->scatter(whole, part, root, "in place")->wait();
  CHECK(holds<float>(part, [&](std::int64_t i) { return static_cast<float>(sample_value(root, 3 * rank + i)); }));
  for (int i = 0; i < 3; ++i) part.data<float>()[i] = static_cast<float>(10 * rank + i);
  comm->gather(part, whole, root, "in place")->wait();
  if (rank == root) {
    CHECK(holds<float>(whole, [](std::int64_t i) {
      const std::int64_t owner = i / 3;
      return static_cast<float>(10 * owner + i % 3);
    }));
  }
}

TEST_CASE_FIXTURE(MpiFixture, "many operations in flight complete in any order") {
  constexpr int kOperations = 40;
  std::vector<Tensor> buffers;
  std::vector<Pending> pending;
  for (int i = 0; i < kOperations; ++i) {
    buffers.push_back(numbers<float>(tensors, DType::kF32, rank + i, 1 + 97 * i));
    const int root = i % size;
    if (i % 3 == 0) pending.push_back(comm->broadcast(buffers.back(), root, "mixed"));
    if (i % 3 != 0) pending.push_back(comm->all_reduce(buffers.back(), ReduceOp::kSum, "mixed"));
  }
  // Each rank waits in an order of its own.
  std::vector<int> order(kOperations);
  for (int i = 0; i < kOperations; ++i) order[static_cast<std::size_t>(i)] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank)));
  for (const int i : order) pending[static_cast<std::size_t>(i)]->wait();
  for (int i = 0; i < kOperations; ++i) {
    CHECK(holds<float>(buffers[static_cast<std::size_t>(i)], [&](std::int64_t place) {
      if (i % 3 == 0) return static_cast<float>(sample_value(i % size + i, place));
      int sum = 0;
      for (int r = 0; r < size; ++r) sum += sample_value(r + i, place);
      return static_cast<float>(sum);
    }));
  }
}

TEST_CASE_FIXTURE(MpiFixture, "test() alone brings an operation to its end, and a dropped handle waits") {
  const Tensor tested = numbers<float>(tensors, DType::kF32, rank, 300'000);
  const Pending pending = comm->all_reduce(tested, ReduceOp::kSum, "tested");
  while (!pending->test()) {
  }
  CHECK(pending->test());  // once complete, always complete
  pending->wait();
  CHECK(holds<float>(tested, [&](std::int64_t i) { return reduced<float>(size, i, ReduceOp::kSum); }));

  const Tensor dropped = numbers<float>(tensors, DType::kF32, rank, 300'000);
  comm->all_reduce(dropped, ReduceOp::kSum, "dropped").reset();
  CHECK(holds<float>(dropped, [&](std::int64_t i) { return reduced<float>(size, i, ReduceOp::kSum); }));
}

TEST_CASE_FIXTURE(MpiFixture, "sums of any floats have the same bits on every rank, every time") {
  for (const std::int64_t count : {7, 1000, 100'000, 1'000'000}) {
    std::mt19937 random(static_cast<unsigned>(rank) + 1);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random);
    const Tensor first = tensors.tensor(values, DType::kF32);
    const Tensor second = tensors.tensor(values, DType::kF32);
    comm->all_reduce(first, ReduceOp::kSum, "first")->wait();
    comm->all_reduce(second, ReduceOp::kSum, "second")->wait();
    CHECK(std::memcmp(first.raw(), second.raw(), first.bytes()) == 0);
    const Tensor roots = tensors.tensor(values_of<float>(first), DType::kF32);
    comm->broadcast(roots, 0, "root's bits")->wait();
    CHECK(std::memcmp(first.raw(), roots.raw(), first.bytes()) == 0);
  }
}

TEST_CASE_FIXTURE(MpiFixture, "buffers beyond one MPI call travel in pieces") {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MpiCommunicator small(copy, "small pieces", kTestTimeout, 100);
  const Tensor sum = numbers<double>(tensors, DType::kF64, rank);
  small.all_reduce(sum, ReduceOp::kSum, "pieces")->wait();
  CHECK(holds<double>(sum, [&](std::int64_t i) { return reduced<double>(size, i, ReduceOp::kSum); }));
  const Tensor top = numbers<double>(tensors, DType::kF64, rank);
  small.reduce(top, ReduceOp::kMax, size - 1, "pieces")->wait();
  if (rank == size - 1) {
    CHECK(holds<double>(top, [&](std::int64_t i) { return reduced<double>(size, i, ReduceOp::kMax); }));
  }
  const Tensor text = numbers<std::uint8_t>(tensors, DType::kU8, rank);
  small.broadcast(text, size - 1, "pieces")->wait();
  CHECK(
      holds<std::uint8_t>(text, [&](std::int64_t i) { return static_cast<std::uint8_t>(sample_value(size - 1, i)); }));
  // Parts would have to be cut across samples: refused, before anything is sent.
  const Tensor whole = tensors.tensor({101 * size}, DType::kU8);
  const Tensor part = tensors.tensor({101}, DType::kU8);
  CHECK(contains(error_of([&] { small.scatter(whole, part, 0, "big"); }), "101 elements"));
  CHECK(contains(error_of([&] { small.gather(part, whole, 0, "big"); }), "smaller batches"));
}

TEST_CASE_FIXTURE(MpiFixture, "an empty tensor needs no communication") {
  const Tensor none = tensors.tensor({0, 3}, DType::kF32);
  CHECK(comm->all_reduce(none, ReduceOp::kSum, "none")->test());
  CHECK(comm->broadcast(none, 0, "none")->test());
}

TEST_CASE_FIXTURE(MpiFixture, "wrong arguments are refused on every rank alike") {
  const Tensor buffer = tensors.tensor({4}, DType::kF32);
  CHECK(contains(error_of([&] { comm->broadcast(buffer, size, "far"); }), fmt::format("root {} is not a rank", size)));
  CHECK(contains(error_of([&] { comm->reduce(buffer, ReduceOp::kSum, -1, "far"); }), "root -1"));
  CHECK(contains(error_of([&] { comm->all_reduce(Tensor(), ReduceOp::kSum, "nothing"); }), "no buffer"));
  if (rank == 0) {
    const Tensor whole = tensors.tensor({4 * size + 1}, DType::kF32);
    CHECK(contains(error_of([&] { comm->scatter(whole, buffer, 0, "uneven"); }), "'uneven'"));
    const Tensor doubles = tensors.tensor({4 * size}, DType::kF64);
    CHECK(contains(error_of([&] { comm->gather(buffer, doubles, 0, "types"); }), "float64"));
  }
}

}  // namespace convoy
