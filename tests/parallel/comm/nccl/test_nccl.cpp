// SPDX-License-Identifier: Apache-2.0
//
// The NCCL communicator on as many ranks as it is started with, one GPU each or all on one: sums that are exact,
// messages both ways at once, recorded work, a rank that does not come.
#include <doctest/doctest.h>

#include <algorithm>

#include "layers/backend/cuda/cuda_state.h"
#include "tests/parallel/comm/nccl/nccl_fixture.h"

namespace convoy {

namespace {

constexpr std::int64_t kCount = 1003;  // no multiple of anything

template <class T>
std::vector<T> numbers(int rank, std::int64_t count = kCount) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(sample_value(rank, i)));
  return values;
}

template <class T>
std::vector<T> reduced(int size, ReduceOp op) {
  std::vector<T> result = numbers<T>(0);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<T> other = numbers<T>(rank);
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (op == ReduceOp::kSum) result[i] = static_cast<T>(result[i] + other[i]);
      if (op == ReduceOp::kMax) result[i] = std::max(result[i], other[i]);
      if (op == ReduceOp::kMin) result[i] = std::min(result[i], other[i]);
    }
  }
  return result;
}

struct Fixture {
  std::unique_ptr<Communicator> comm = nccl_communicator("test");
  int rank = comm->rank();
  int size = comm->size();
};

template <class T>
void check_type(Fixture& f, DType dtype) {
  CAPTURE(dtype_name(dtype));
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    const Tensor all = on_gpu(numbers<T>(f.rank), dtype);
    f.comm->all_reduce(all, op, "all")->wait();
    CHECK(from_gpu<T>(all) == reduced<T>(f.size, op));
    for (int root = 0; root < f.size; ++root) {
      const Tensor one = on_gpu(numbers<T>(f.rank), dtype);
      f.comm->reduce(one, op, root, "one")->wait();
      CHECK(from_gpu<T>(one) == (f.rank == root ? reduced<T>(f.size, op) : numbers<T>(f.rank)));
    }
  }
  for (int root = 0; root < f.size; ++root) {
    const Tensor copy = on_gpu(numbers<T>(f.rank), dtype);
    f.comm->broadcast(copy, root, "copy")->wait();
    CHECK(from_gpu<T>(copy) == numbers<T>(root));
  }
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "all_reduce, reduce and broadcast") {
  check_type<float>(*this, DType::kF32);
  check_type<double>(*this, DType::kF64);
  check_type<std::int64_t>(*this, DType::kI64);
  check_type<std::uint8_t>(*this, DType::kU8);
}

TEST_CASE_FIXTURE(Fixture, "bfloat16 numbers are added, too") {
  const Tensor plain = on_gpu(std::vector<float>(kCount, static_cast<float>(rank + 1)), DType::kF32);
  const Tensor half = test_backend().tensor({kCount}, DType::kBF16);
  test_backend().run(ops::Cast{plain, half});
  comm->all_reduce(half, ReduceOp::kSum, "halves")->wait();
  test_backend().run(ops::Cast{half, plain});
  CHECK(from_gpu<float>(plain) == std::vector<float>(kCount, static_cast<float>(size * (size + 1) / 2)));
}

TEST_CASE_FIXTURE(Fixture, "scatter and gather cut the first axis, from every root, also in place") {
  for (int root = 0; root < size; ++root) {
    for (const bool in_place : {false, true}) {
      const std::int64_t part_size = 10;
      const Tensor whole = on_gpu(numbers<float>(root, part_size * size), DType::kF32);
      const Tensor part = in_place && rank == root ? whole.view(part_size * rank, {part_size})
                                                   : on_gpu(std::vector<float>(part_size), DType::kF32);
      const Tensor none;
      comm->scatter(rank == root ? whole : none, part, root, "samples")->wait();
      const std::vector<float> all = numbers<float>(root, part_size * size);
      const auto mine = all.begin() + part_size * rank;
      CHECK(from_gpu<float>(part) == std::vector<float>(mine, mine + part_size));
      const Tensor ones = on_gpu(std::vector<float>(part_size, static_cast<float>(100 * rank)), DType::kF32);
      test_backend().run(ops::Axpy{1, ones, part});
      comm->gather(part, rank == root ? whole : none, root, "outputs")->wait();
      if (rank != root) continue;
      std::vector<float> expected = all;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += static_cast<float>(100 * (static_cast<std::int64_t>(i) / part_size));
      }
      CHECK(from_gpu<float>(whole) == expected);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "all_gather joins parts in rank order, reduce_scatter divides sums") {
  const std::int64_t part_size = 10;
  const Tensor labels = on_gpu(numbers<std::int64_t>(rank, part_size), DType::kI64);
  const Tensor all = test_backend().tensor({part_size * size}, DType::kI64);
  comm->all_gather(labels, all, "labels")->wait();
  std::vector<std::int64_t> joined;
  for (int other = 0; other < size; ++other) {
    const std::vector<std::int64_t> part = numbers<std::int64_t>(other, part_size);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  CHECK(from_gpu<std::int64_t>(all) == joined);

  const Tensor whole = on_gpu(numbers<float>(rank, part_size * size), DType::kF32);
  const Tensor sum = test_backend().tensor({part_size}, DType::kF32);
  comm->reduce_scatter(whole, sum, "gradients")->wait();
  std::vector<float> expected(static_cast<std::size_t>(part_size));
  for (int other = 0; other < size; ++other) {
    const std::vector<float> all_of_it = numbers<float>(other, part_size * size);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += all_of_it[static_cast<std::size_t>(part_size * rank) + i];
    }
  }
  CHECK(from_gpu<float>(sum) == expected);
}

TEST_CASE_FIXTURE(Fixture, "messages go round both ways at once, several under way, longer than any buffer") {
  if (size == 1) return;
  constexpr std::int64_t kLong = kOnHost ? 1 << 20 : 8 << 20;
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  std::vector<Pending> pending;
  std::vector<Tensor> out, from_last, from_next;  // before the first send, as new memory may wait for it
  for (int i = 0; i < 3; ++i) {
    const std::int64_t count = i == 1 ? kLong : kCount;
    out.push_back(on_gpu(numbers<float>(rank + i, count), DType::kF32));
    from_last.push_back(test_backend().tensor({count}, DType::kF32));
    from_next.push_back(test_backend().tensor({count}, DType::kF32));
  }
  for (const Tensor& each : out) {
    pending.push_back(comm->send(each, next, 0, "activation"));
    pending.push_back(comm->send(each, last, 1, "gradient"));
  }
  out.clear();
  // All sends stand before all receives: a queue for both would never end. Of two neighbours on a ring of two each gets
  // both messages in the order in which they were sent.
  for (std::size_t i = 0; i < 3; ++i) {
    pending.push_back(comm->receive(from_last[i], last, 0, "activation"));
    pending.push_back(comm->receive(from_next[i], next, 1, "gradient"));
  }
  for (const Pending& operation : pending) operation->wait();
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t count = from_last[at].size();
    CHECK(from_gpu<float>(from_last[at]) == numbers<float>(last + i, count));
    CHECK(from_gpu<float>(from_next[at]) == numbers<float>(next + i, count));
  }
}

TEST_CASE_FIXTURE(Fixture, "operations wait for what computes before them, and what computes after them waits") {
  const std::int64_t count = kOnHost ? 1 << 16 : 4 << 20;
  const Tensor x = on_gpu(std::vector<float>(static_cast<std::size_t>(count), 1), DType::kF32);
  for (int round = 0; round < 20; ++round) {
    test_backend().run(ops::Scale{2, x, x});
    comm->all_reduce(x, ReduceOp::kMax, "ordered")->wait();
    test_backend().run(ops::Scale{0.5F, x, x});
  }
  CHECK(from_gpu<float>(x) == std::vector<float>(static_cast<std::size_t>(count), 1));
}

TEST_CASE_FIXTURE(Fixture, "test() brings an operation to its end, and a dropped handle is waited for") {
  for (int i = 0; i < 100; ++i) {
    const Tensor tested = on_gpu(numbers<float>(rank), DType::kF32);
    const Pending operation = comm->all_reduce(tested, ReduceOp::kSum, "tested");
    while (!operation->test()) {
    }
    CHECK(operation->test());
    operation->wait();
    const Tensor dropped = on_gpu(numbers<float>(rank), DType::kF32);
    comm->all_reduce(dropped, ReduceOp::kSum, "dropped").reset();
    if (i % 50 == 0) CHECK(from_gpu<float>(tested) == reduced<float>(size, ReduceOp::kSum));
    if (i % 50 == 0) CHECK(from_gpu<float>(dropped) == reduced<float>(size, ReduceOp::kSum));
  }
}

TEST_CASE_FIXTURE(Fixture, "recorded work replays its reductions, also between plain ones") {
  const std::vector<float> ones(kCount, 1);
  const Tensor x = on_gpu(ones, DType::kF32), y = on_gpu(ones, DType::kF32);
  const auto step = [&] {
    const Pending first = comm->all_reduce(x, ReduceOp::kSum, "first");
    const Pending second = comm->all_reduce(y, ReduceOp::kSum, "second");
    if (size > 1 && test_backend().state().capturing()) CHECK_FALSE(first->test());
    first->wait();
    second->wait();
    test_backend().run(ops::Scale{1.0F / static_cast<float>(size), x, x});
  };
  step();
  const auto recorded = test_backend().record(step);
  REQUIRE(recorded);
  for (int i = 0; i < 5; ++i) {
    test_backend().copy_from_host(ones.data(), y);
    recorded->replay();
    comm->all_reduce(y, ReduceOp::kMax, "between")->wait();
    CHECK(from_gpu<float>(x) == ones);
    CHECK(from_gpu<float>(y) == std::vector<float>(kCount, static_cast<float>(size)));
  }
}

TEST_CASE_FIXTURE(Fixture, "wrong arguments and empty tensors") {
  const Tensor buffer = on_gpu(std::vector<float>(4), DType::kF32);
  CHECK(contains(error_of([&] { comm->broadcast(buffer, size, "far"); }), fmt::format("root {} is not a rank", size)));
  CHECK(contains(error_of([&] { comm->all_reduce(Tensor(), ReduceOp::kSum, "nothing"); }), "no buffer"));
  CHECK(contains(error_of([&] { comm->send(buffer, rank, 0, "self"); }), "no such neighbour"));
  CHECK(comm->all_reduce(test_backend().tensor({0, 3}, DType::kF32), ReduceOp::kSum, "none")->test());
}

TEST_CASE_FIXTURE(Fixture, "a steady step takes no device memory") {
  const Tensor x = on_gpu(std::vector<float>(kCount, 0), DType::kF32);
  comm->all_reduce(x, ReduceOp::kSum, "steady")->wait();
  const std::uint64_t before = test_backend().pool().raw_allocations();
  for (int i = 0; i < 50; ++i) comm->all_reduce(x, ReduceOp::kSum, "steady")->wait();
  test_backend().synchronize();
  CHECK(test_backend().pool().raw_allocations() == before);
}

// The last: its communicator ends aborted.
TEST_CASE("an operation that a rank does not take part in is named when its time is over") {
  const auto host = test_world().ranks().communicator(kTestTimeout, "host");
  if (host->size() == 1) return;
  {
    const auto short_of_time = nccl_communicator("short", 3);
    const Tensor x = on_gpu(std::vector<float>(kCount, 1), DType::kF32);
    short_of_time->all_reduce(x, ReduceOp::kSum, "together")->wait();
    test_backend().synchronize();
    if (host->rank() == 0) {
      const std::string words = error_of([&] {
        short_of_time->all_reduce(x, ReduceOp::kSum, "alone")->wait();
        test_backend().synchronize();
      });
      CAPTURE(words);
      CHECK(contains(words, "all_reduce 'alone' (collective 2 on NCCL communicator 'short'"));
      CHECK(contains(words, "timed out"));
    }
    host->barrier("rank 0 has given up");
  }
  const Tensor after = on_gpu(std::vector<float>(kCount, 1), DType::kF32);
  CHECK(from_gpu<float>(after) == std::vector<float>(kCount, 1));  // the GPU works on
}

}  // namespace convoy
