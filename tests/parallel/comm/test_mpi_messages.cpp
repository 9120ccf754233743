// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks: pairs, rings, tags, sizes; and the numbers that operations carry.
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/comm/mpi_communicator.h"
#include "tests/parallel/mpi_fixture.h"

namespace convoy {

TEST_CASE_FIXTURE(MpiFixture, "a ring passes every type on") {
  const int next = (rank + 1) % size;
  const int last = (rank + size - 1) % size;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kU8, DType::kI64}) {
    CAPTURE(dtype_name(dtype));
    const Tensor out = tensors.tensor({50'000}, dtype);
    const Tensor in = tensors.tensor({50'000}, dtype);
    for (std::size_t i = 0; i < out.bytes(); ++i) {
      out.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(sample_value(rank, static_cast<std::int64_t>(i)));
    }
    if (size == 1) {  // nobody to talk to: refused, not hung
      CHECK(contains(error_of([&] { comm->send(out, next, 0, "ring"); }), "no such partner"));
      CHECK(contains(error_of([&] { comm->receive(in, last, 0, "ring"); }), "receive from rank 0 'ring'"));
      continue;
    }
    const Pending receiving = comm->receive(in, last, 3, "ring");
    const Pending sending = comm->send(out, next, 3, "ring");
    receiving->wait();
    sending->wait();
    bool same = true;
    for (std::size_t i = 0; i < in.bytes(); ++i) {
      same = same && in.data<std::uint8_t>()[i] == sample_value(last, static_cast<std::int64_t>(i));
    }
    CHECK(same);
  }
}

TEST_CASE_FIXTURE(MpiFixture, "tags sort messages, order sorts those of one tag") {
  if (size == 1) return;
  constexpr int kMessages = 6;
  std::vector<Tensor> buffers;
  std::vector<Pending> pending;
  if (rank == 0) {
    for (int i = 0; i < kMessages; ++i) {
      buffers.push_back(tensors.tensor(std::vector<std::int64_t>{i}, DType::kI64));
      pending.push_back(comm->send(buffers.back(), size - 1, i % 2, "numbered"));
    }
  } else if (rank == size - 1) {
    for (int i = 0; i < kMessages; ++i) buffers.push_back(tensors.tensor({1}, DType::kI64));
    // The odd ones first.
    for (int i : {1, 3, 5, 0, 2, 4}) {
      pending.push_back(comm->receive(buffers[static_cast<std::size_t>(i)], 0, i % 2, "numbered"));
    }
  }
  for (const Pending& operation : pending) operation->wait();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    CHECK(buffers[i].data<std::int64_t>()[0] == static_cast<std::int64_t>(i));
  }
}

TEST_CASE_FIXTURE(MpiFixture, "long messages travel in pieces, both ways at once") {
  if (size == 1) return;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MpiCommunicator small(copy, "small pieces", kTestTimeout, 64);
  const int partner = rank ^ 1;
  const Tensor out = tensors.tensor({1000}, DType::kF32);
  const Tensor in = tensors.tensor({1000}, DType::kF32);
  for (std::int64_t i = 0; i < 1000; ++i) out.data<float>()[i] = static_cast<float>(sample_value(rank, i));
  const Pending sending = small.send(out, partner, 0, "pieces");
  const Pending receiving = small.receive(in, partner, 0, "pieces");
  sending->wait();
  receiving->wait();
  bool same = true;
  for (std::int64_t i = 0; i < 1000; ++i) {
    same = same && in.data<float>()[i] == static_cast<float>(sample_value(partner, i));
  }
  CHECK(same);
}

TEST_CASE_FIXTURE(MpiFixture, "a message of another size than awaited is an Error, short or long") {
  if (size == 1) return;
  const Tensor eight = tensors.tensor({8}, DType::kF32);
  if (rank == 0) {
    comm->send(eight, 1, 0, "short one")->wait();
    comm->send(eight, 1, 1, "long one")->wait();
  } else if (rank == 1) {
    const Tensor ten = tensors.tensor({10}, DType::kF32);
    const Tensor six = tensors.tensor({6}, DType::kF32);
    const std::string too_short = error_of([&] { comm->receive(ten, 0, 0, "short one")->wait(); });
    CAPTURE(too_short);
    CHECK(contains(too_short, "got 32 bytes where 40 were expected"));
    const std::string too_long = error_of([&] { comm->receive(six, 0, 1, "long one")->wait(); });
    CAPTURE(too_long);
    CHECK(contains(too_long, "'long one'"));
    CHECK(contains(too_long, "truncated"));  // Open MPI: "MPI_ERR_TRUNCATE: message truncated", MPICH: "Message ..."
  }
  comm->barrier("after wrong sizes");
}

TEST_CASE_FIXTURE(MpiFixture, "partners and tags are checked") {
  const Tensor buffer = tensors.tensor({1}, DType::kF32);
  CHECK(contains(error_of([&] { comm->send(buffer, size, 0, "far"); }), "no such partner"));
  CHECK(contains(error_of([&] { comm->send(buffer, rank, 0, "self"); }), "no such partner"));
  if (size > 1) {
    CHECK(contains(error_of([&] { comm->send(buffer, (rank + 1) % size, -1, "tag"); }), "tag"));
    CHECK(contains(error_of([&] { comm->receive(Tensor(), (rank + 1) % size, 0, "none"); }), "no buffer"));
  }
}

TEST_CASE_FIXTURE(MpiFixture, "collectives and messages of one communicator do not disturb each other") {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MpiCommunicator counted(copy, "counted", kTestTimeout);
  const Tensor a = tensors.tensor(std::vector<float>{1}, DType::kF32);
  const Tensor b = tensors.tensor(std::vector<float>{1}, DType::kF32);
  const Tensor message = tensors.tensor(std::vector<float>{2}, DType::kF32);
  const Pending first = counted.all_reduce(a, ReduceOp::kSum, "first");
  Pending between;
  if (size > 1 && rank == 0) between = counted.send(message, 1, 0, "between");
  if (size > 1 && rank == 1) between = counted.receive(message, 0, 0, "between");
  const Pending second = counted.all_reduce(b, ReduceOp::kSum, "second");
  counted.barrier("third");
  second->wait();
  first->wait();
  if (between) between->wait();
  CHECK(a.data<float>()[0] == static_cast<float>(size));
  CHECK(b.data<float>()[0] == static_cast<float>(size));
}

}  // namespace convoy
