// SPDX-License-Identifier: Apache-2.0
//
// The small blocking exchanges of numbers and texts, and the reducer that batch norm uses.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "layers/base/trace.h"
#include "parallel/comm/clock_offset.h"
#include "parallel/comm/host_exchange.h"
#include "parallel/comm/statistics_reducer.h"
#include "tests/parallel/mpi_fixture.h"

namespace convoy {

TEST_CASE_FIXTURE(MpiFixture, "numbers reduce") {
  std::vector<double> values = {static_cast<double>(rank), 1.0, -static_cast<double>(rank)};
  std::vector<double> highest = values;
  std::vector<double> lowest = values;
  comm->all_reduce(values, ReduceOp::kSum, "sums");
  comm->all_reduce(highest, ReduceOp::kMax, "highest");
  comm->all_reduce(lowest, ReduceOp::kMin, "lowest");
  const double ranks = size;
  CHECK(values == std::vector<double>{ranks * (ranks - 1) / 2, ranks, -ranks * (ranks - 1) / 2});
  CHECK(highest == std::vector<double>{ranks - 1, 1, 0});
  CHECK(lowest == std::vector<double>{0, 1, 1 - ranks});
  comm->all_reduce(std::span<double>(), ReduceOp::kSum, "nothing");
}

TEST_CASE_FIXTURE(MpiFixture, "texts of any length come from every root") {
  const std::string with_zero("a\0b", 3);
  for (int root = 0; root < size; ++root) {
    for (const std::string& text : {std::string(), std::string("x"), with_zero, std::string(200'000, 'y')}) {
      CHECK(comm->broadcast(rank == root ? text : "not this", root, "text") == text);
    }
  }
}

TEST_CASE_FIXTURE(MpiFixture, "a text of several messages comes whole") {
  if (size != 2) return;  // it takes memory
  std::string text((64UL << 20U) + 5, 'a');
  text.back() = 'z';
  text[64UL << 20U] = 'm';
  CHECK(comm->broadcast(rank == 1 ? text : "", 1, "long text") == text);
}

TEST_CASE_FIXTURE(MpiFixture, "texts of different lengths gather in rank order") {
  const auto text_of = [](int r) {
    return r == 1 ? std::string() : std::string(static_cast<std::size_t>(1 + r * 1000), 'a');
  };
  const std::vector<std::string> texts = comm->all_gather(text_of(rank), "texts");
  REQUIRE(texts.size() == static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) CHECK(texts[static_cast<std::size_t>(r)] == text_of(r));
}

TEST_CASE_FIXTURE(MpiFixture, "exchanges may pass operations that are still under way") {
  const Tensor slow = tensors.tensor({500'000}, DType::kF32);
  std::fill_n(slow.data<float>(), slow.size(), 1.0F);
  const Pending pending = comm->all_reduce(slow, ReduceOp::kSum, "slow");
  for (int i = 0; i < 20; ++i) {
    std::vector<double> one = {1.0};
    comm->all_reduce(one, ReduceOp::kSum, "quick");
    CHECK(one[0] == size);
  }
  pending->wait();
  CHECK(slow.data<float>()[499'999] == static_cast<float>(size));
}

TEST_CASE_FIXTURE(MpiFixture, "batch norm's sums are those of all replicas") {
  CommunicatorStatisticsReducer reducer(*comm);
  std::vector<double> sums(128);
  std::iota(sums.begin(), sums.end(), 1.0 + rank);
  reducer.sum(sums);
  const int of_ranks = size * (size - 1) / 2;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    CHECK(sums[i] == static_cast<double>(size) * (1.0 + static_cast<double>(i)) + of_ranks);
  }
}

TEST_CASE_FIXTURE(MpiFixture, "a barrier holds every rank until the last comes") {
  for (int i = 0; i < 50; ++i) comm->barrier("again");
}

TEST_CASE_FIXTURE(MpiFixture, "bytes of any number go from one rank to another") {
  if (size < 2) return;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{70} << 20U}) {  // more than one piece
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
    if (rank == 0) comm->send_bytes(bytes, 1, "bytes");
    if (rank == 1) CHECK(comm->receive_bytes(0, "bytes") == bytes);
  }
}

TEST_CASE_FIXTURE(MpiFixture, "named tensors arrive as they were sent") {
  if (size < 2) return;
  std::vector<HostTensor> sent;
  sent.emplace_back("layer1.0.weight", Shape{2, 3, 1, 1}, DType::kF32);
  sent.emplace_back("a name with spaces", Shape{4}, DType::kI64);
  sent.emplace_back("scalar", Shape{}, DType::kI64);
  for (HostTensor& tensor : sent) {
    for (std::size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = static_cast<std::byte>(i + 1);
  }
  if (rank == 0) send_tensors(*comm, sent, 1, "sent");
  if (rank == 0) send_tensors(*comm, {}, 1, "no tensors");
  if (rank != 1) return;
  const std::vector<HostTensor> back = receive_tensors(*comm, 0, "sent");
  REQUIRE(back.size() == sent.size());
  for (std::size_t i = 0; i < back.size(); ++i) {
    CHECK(back[i].name == sent[i].name);
    CHECK(back[i].shape == sent[i].shape);
    CHECK(back[i].dtype == sent[i].dtype);
    CHECK(back[i].bytes == sent[i].bytes);
  }
  CHECK(receive_tensors(*comm, 0, "no tensors").empty());
}

TEST_CASE_FIXTURE(MpiFixture, "texts merge in rank order on the way to rank 0") {
  std::string expected;
  for (int r = 0; r < size; ++r) expected += std::to_string(r) + ",";
  const std::string joined = join_texts(*comm, std::to_string(rank) + ",", "numbers");
  CHECK(joined == (rank == 0 ? expected : ""));
  const auto most = [](const std::string& lower, const std::string& higher) { return std::max(lower, higher); };
  const std::string largest = reduce_texts(*comm, std::string(1, static_cast<char>('a' + rank)), most, "letters");
  CHECK(largest == (rank == 0 ? std::string(1, static_cast<char>('a' + size - 1)) : ""));
}

// On one machine the clocks are one: hosts of made-up names let the estimate be checked against the targets, 0.
TEST_CASE_FIXTURE(MpiFixture, "clocks of different hosts are brought together") {
  const double before = trace::now();
  const double offset = clock_offset(*comm, "host " + std::to_string(rank));
  // Off by at most half of a round trip, which is part of the time that all of it took.
  CHECK(std::abs(offset) <= trace::now() - before);
  CHECK(clock_offset(*comm, "one host") == 0);
  const double start = trace::now();
  const double of_pairs = clock_offset(*comm, "host " + std::to_string(rank / 2));
  CHECK(std::abs(of_pairs) <= trace::now() - start);
  if (rank == 1) CHECK(of_pairs == 0);  // on rank 0's host
}

}  // namespace convoy
