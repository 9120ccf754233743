// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/mpi_communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <span>

#include "layers/base/error.h"
#include "layers/base/option_error.h"
#include "parallel/base/mpi_check.h"
#include "parallel/watchdog/call_deadline.h"

namespace convoy {

namespace {

// For moving data; bfloat16 and float16 travel as two plain bytes.
MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return MPI_FLOAT;
    case DType::kF64: return MPI_DOUBLE;
    case DType::kI64: return MPI_INT64_T;
    case DType::kU8: return MPI_UINT8_T;
    case DType::kBF16: return MPI_UINT16_T;
    case DType::kF16: return MPI_UINT16_T;
  }
  fail("unknown element type {}", static_cast<int>(dtype));
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return MPI_SUM;
    case ReduceOp::kMax: return MPI_MAX;
    case ReduceOp::kMin: return MPI_MIN;
  }
  fail("unknown reduction {}", static_cast<int>(op));
}

void check_buffer(const Tensor& buffer, const MpiOperation& operation) {
  if (!buffer) fail("{} has no buffer", operation.label());
}

void check_reducible(const Tensor& buffer, const MpiOperation& operation) {
  check_buffer(buffer, operation);
  if (buffer.dtype() == DType::kBF16 || buffer.dtype() == DType::kF16) {
    fail("{}: MPI cannot add {} numbers; reduce them in float32", operation.label(), dtype_name(buffer.dtype()));
  }
}

constexpr int kBytesTag = 32766;                  // of send_bytes(); MPI promises tags up to 32767
constexpr std::size_t kBytesPiece = 64UL << 20U;  // of one message of it

// One MPI call takes at most INT_MAX items.
int checked_count(std::size_t count, const MpiOperation& operation) {
  if (count > INT_MAX) fail("{}: {} items are more than one MPI call takes ({})", operation.label(), count, INT_MAX);
  return static_cast<int>(count);
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm owned, const std::string& name, double timeout, std::int64_t max_count)
    : comm_(owned), max_count_(max_count) {
  if (!(timeout > 0)) {
    MPI_Comm_free(&comm_);  // it is ours already, and a constructor that throws has no destructor
    fail_option("parallel.timeout", "{:g} s is not a time to wait (it must be above 0)", timeout);
  }
  CONVOY_MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  identity_ = std::make_shared<CommunicatorIdentity>(comm_, name, timeout);
  void* bound = nullptr;
  int found = 0;
  CONVOY_MPI_CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found));
  if (found != 0) max_tag_ = *static_cast<int*>(bound);
}

MpiCommunicator::~MpiCommunicator() {
  int ended = 0;
  MPI_Finalized(&ended);
  // Freeing is collective, and abandoned operations still need it: on the way to an abort it stays.
  if (ended != 0 || identity_->abandoned || std::uncaught_exceptions() > 0) return;
  const CallDeadline deadline("the freeing of communicator '" + identity_->watched.name() + "'", identity_->timeout);
  MPI_Comm_free(&comm_);
}

MpiCommunicator::Operation MpiCommunicator::start_collective(const char* kind, const std::string& what) {
  return std::make_unique<MpiOperation>(identity_, OperationName{kind, ++collectives_, what});
}

MpiCommunicator::Operation MpiCommunicator::start_message(const char* kind, int peer, int tag,
                                                          const std::string& what) {
  auto operation = std::make_unique<MpiOperation>(
      identity_, OperationName{fmt::format("{} rank {}", kind, peer), ++messages_, what, true, peer, tag});
  if (peer < 0 || peer >= size() || peer == rank()) {
    fail("{}: rank {} of {} has no such partner", operation->label(), rank(), size());
  }
  if (tag < 0 || tag > max_tag_) fail("{}: the tag is outside 0 to {}", operation->label(), max_tag_);
  return operation;
}

void MpiCommunicator::check_root(int root, const MpiOperation& operation) const {
  if (root < 0 || root >= size()) fail("{}: root {} is not a rank of it", operation.label(), root);
}

// Calls start(first element, number of elements) for ranges that one MPI call can take.
template <class Start>
void MpiCommunicator::in_pieces(const Tensor& buffer, const Start& start) const {
  auto* data = buffer.data<std::byte>();
  for (std::int64_t first = 0; first < buffer.size(); first += max_count_) {
    const std::int64_t count = std::min(max_count_, buffer.size() - first);
    start(data + static_cast<std::size_t>(first) * dtype_size(buffer.dtype()), static_cast<int>(count));
  }
}

Tensor MpiCommunicator::reduction_memory(std::int64_t elements) {
  if (size() == 1 || elements == 0) return {};
  if (shared_sum_) fail("communicator '{}' has lent its memory already", identity_->watched.name());
  barrier("before sharing memory");  // making it blocks inside MPI, where a late rank can be named by nobody
  const CallDeadline deadline("the sharing of memory on communicator '" + identity_->watched.name() + "'",
                              identity_->timeout);
  shared_sum_ = SharedSum::create(comm_, elements);
  return shared_sum_ ? shared_sum_->memory() : Tensor();
}

bool MpiCommunicator::start_shared_sum(const Tensor& buffer, MpiOperation& operation) {
  if (!shared_sum_ || !shared_sum_->holds(buffer)) return false;
  operation.until([sum = shared_sum_.get(), number = shared_sum_->start(buffer)] { return sum->finished(number); });
  return true;
}

Pending MpiCommunicator::all_reduce(const Tensor& buffer, ReduceOp op, const std::string& what) {
  auto operation = start_collective("all_reduce", what);
  check_reducible(buffer, *operation);
  if (size() == 1) return operation;
  operation->keep(buffer);
  if (op == ReduceOp::kSum && start_shared_sum(buffer, *operation)) return operation;
  in_pieces(buffer, [&](void* data, int count) {
    CONVOY_MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, data, count, mpi_type(buffer.dtype()), mpi_op(op), comm_,
                                    operation->add_request()));
  });
  return operation;
}

Pending MpiCommunicator::broadcast(const Tensor& buffer, int root, const std::string& what) {
  auto operation = start_collective("broadcast", what);
  check_buffer(buffer, *operation);
  check_root(root, *operation);
  if (size() == 1) return operation;
  operation->keep(buffer);
  in_pieces(buffer, [&](void* data, int count) {
    CONVOY_MPI_CHECK(MPI_Ibcast(data, count, mpi_type(buffer.dtype()), root, comm_, operation->add_request()));
  });
  return operation;
}

Pending MpiCommunicator::reduce(const Tensor& buffer, ReduceOp op, int root, const std::string& what) {
  auto operation = start_collective("reduce", what);
  check_reducible(buffer, *operation);
  check_root(root, *operation);
  if (size() == 1) return operation;
  operation->keep(buffer);
  if (op == ReduceOp::kSum && start_shared_sum(buffer, *operation)) return operation;  // on all ranks, as fast
  in_pieces(buffer, [&](void* data, int count) {
    const void* input = rank() == root ? MPI_IN_PLACE : data;
    void* result = rank() == root ? data : nullptr;
    CONVOY_MPI_CHECK(
        MPI_Ireduce(input, result, count, mpi_type(buffer.dtype()), mpi_op(op), root, comm_, operation->add_request()));
  });
  return operation;
}

// Elements of one part, checked. The first axis is outermost in memory, so parts are contiguous.
int MpiCommunicator::part_count(const Tensor& whole, const Tensor& part, int root,
                                const MpiOperation& operation) const {
  check_root(root, operation);
  check_buffer(part, operation);
  if (part.size() > max_count_) {
    fail("{}: a part of {} elements is more than one MPI call takes ({}); use smaller batches", operation.label(),
         part.size(), max_count_);
  }
  if (rank() == root) {
    check_buffer(whole, operation);
    if (part.size() * size() != whole.size() || part.dtype() != whole.dtype()) {
      fail("{}: {} {} is not {} times {} {}", operation.label(), dtype_name(whole.dtype()), whole.shape().str(), size(),
           dtype_name(part.dtype()), part.shape().str());
    }
  }
  return static_cast<int>(part.size());
}

Pending MpiCommunicator::scatter(const Tensor& whole, const Tensor& part, int root, const std::string& what) {
  auto operation = start_collective("scatter", what);
  const int count = part_count(whole, part, root, *operation);
  const bool is_root = rank() == root;
  // A root's part may be its own slice of the whole: MPI wants to be told.
  const bool in_place =
      is_root && part.raw() == whole.data<std::byte>() + part.bytes() * static_cast<std::size_t>(root);
  if (size() == 1) {
    if (!in_place) std::memcpy(part.raw(), whole.raw(), part.bytes());
    return operation;
  }
  operation->keep(part);
  if (is_root) operation->keep(whole);
  const MPI_Datatype type = mpi_type(part.dtype());
  CONVOY_MPI_CHECK(MPI_Iscatter(is_root ? whole.raw() : nullptr, count, type, in_place ? MPI_IN_PLACE : part.raw(),
                                count, type, root, comm_, operation->add_request()));
  return operation;
}

Pending MpiCommunicator::gather(const Tensor& part, const Tensor& whole, int root, const std::string& what) {
  auto operation = start_collective("gather", what);
  const int count = part_count(whole, part, root, *operation);
  const bool is_root = rank() == root;
  const bool in_place =
      is_root && part.raw() == whole.data<std::byte>() + part.bytes() * static_cast<std::size_t>(root);
  if (size() == 1) {
    if (!in_place) std::memcpy(whole.raw(), part.raw(), part.bytes());
    return operation;
  }
  operation->keep(part);
  if (is_root) operation->keep(whole);
  const MPI_Datatype type = mpi_type(part.dtype());
  CONVOY_MPI_CHECK(MPI_Igather(in_place ? MPI_IN_PLACE : part.raw(), count, type, is_root ? whole.raw() : nullptr,
                               count, type, root, comm_, operation->add_request()));
  return operation;
}

Pending MpiCommunicator::all_gather(const Tensor& part, const Tensor& whole, const std::string& what) {
  auto operation = start_collective("all_gather", what);
  const int count = part_count(whole, part, rank(), *operation);
  if (size() == 1) {
    std::memcpy(whole.raw(), part.raw(), part.bytes());
    return operation;
  }
  operation->keep(part);
  operation->keep(whole);
  const MPI_Datatype type = mpi_type(part.dtype());
  CONVOY_MPI_CHECK(MPI_Iallgather(part.raw(), count, type, whole.raw(), count, type, comm_, operation->add_request()));
  return operation;
}

Pending MpiCommunicator::reduce_scatter(const Tensor& whole, const Tensor& part, const std::string& what) {
  auto operation = start_collective("reduce_scatter", what);
  const int count = part_count(whole, part, rank(), *operation);
  check_reducible(whole, *operation);
  if (size() == 1) {
    std::memcpy(part.raw(), whole.raw(), part.bytes());
    return operation;
  }
  operation->keep(part);
  operation->keep(whole);
  CONVOY_MPI_CHECK(MPI_Ireduce_scatter_block(whole.raw(), part.raw(), count, mpi_type(part.dtype()), MPI_SUM, comm_,
                                             operation->add_request()));
  return operation;
}

Pending MpiCommunicator::send(const Tensor& buffer, int peer, int tag, const std::string& what) {
  auto operation = start_message("send to", peer, tag, what);
  check_buffer(buffer, *operation);
  operation->keep(buffer);
  in_pieces(buffer, [&](const void* data, int count) {
    CONVOY_MPI_CHECK(MPI_Isend(data, count, mpi_type(buffer.dtype()), peer, tag, comm_, operation->add_request()));
  });
  return operation;
}

Pending MpiCommunicator::receive(const Tensor& buffer, int peer, int tag, const std::string& what) {
  auto operation = start_message("receive from", peer, tag, what);
  check_buffer(buffer, *operation);
  operation->keep(buffer);
  in_pieces(buffer, [&](void* data, int count) {
    operation->expect_bytes(count * static_cast<std::int64_t>(dtype_size(buffer.dtype())));
    CONVOY_MPI_CHECK(MPI_Irecv(data, count, mpi_type(buffer.dtype()), peer, tag, comm_, operation->add_request()));
  });
  return operation;
}

void MpiCommunicator::all_reduce(std::span<double> values, ReduceOp op, const std::string& what) {
  auto operation = start_collective("all_reduce", what);
  const int count = checked_count(values.size(), *operation);
  if (size() == 1 || count == 0) return;
  auto* data = operation->allocate(values.size_bytes());
  std::memcpy(data, values.data(), values.size_bytes());
  CONVOY_MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, data, count, MPI_DOUBLE, mpi_op(op), comm_, operation->add_request()));
  operation->wait();
  std::memcpy(values.data(), data, values.size_bytes());
}

std::string MpiCommunicator::broadcast(std::string text, int root, const std::string& what) {
  auto operation = start_collective("broadcast", what);
  check_root(root, *operation);
  if (size() == 1) return text;
  // First the length, then the text in pieces, each through memory that the operation owns.
  std::uint64_t length = text.size();
  auto* header = operation->allocate(sizeof length);
  std::memcpy(header, &length, sizeof length);
  CONVOY_MPI_CHECK(MPI_Ibcast(header, sizeof length, MPI_BYTE, root, comm_, operation->add_request()));
  operation->wait();
  std::memcpy(&length, header, sizeof length);

  if (rank() != root) text.resize(length);
  for (std::size_t first = 0; first < length; first += kBytesPiece) {
    const std::size_t count = std::min(kBytesPiece, text.size() - first);
    auto* piece = operation->allocate(count);
    if (rank() == root) std::memcpy(piece, text.data() + first, count);
    CONVOY_MPI_CHECK(MPI_Ibcast(piece, static_cast<int>(count), MPI_BYTE, root, comm_, operation->add_request()));
    operation->wait();
    if (rank() != root) std::memcpy(text.data() + first, piece, count);
  }
  return text;
}

// Sums of the lengths and of the bytes, with zeros for those of the others: Open MPI 4 has a tree for a non-blocking
// all-reduce, but for a non-blocking all-gather each rank sends to each.
std::vector<std::string> MpiCommunicator::all_gather(const std::string& text, const std::string& what) {
  auto operation = start_collective("all_gather", what);
  if (size() == 1) return {text};
  const auto members = static_cast<std::size_t>(size());
  auto* memory = operation->allocate(members * sizeof(std::uint64_t));
  std::vector<std::uint64_t> lengths(members);
  lengths[static_cast<std::size_t>(rank())] = text.size();
  std::memcpy(memory, lengths.data(), members * sizeof(std::uint64_t));
  CONVOY_MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, memory, checked_count(members, *operation), MPI_UINT64_T, MPI_SUM,
                                  comm_, operation->add_request()));
  operation->wait();
  std::memcpy(lengths.data(), memory, members * sizeof(std::uint64_t));

  std::size_t before = 0, total = 0;
  for (std::size_t i = 0; i < members; ++i) {
    if (i < static_cast<std::size_t>(rank())) before += lengths[i];
    total += lengths[i];
  }
  std::vector<std::string> texts(members);
  if (total == 0) return texts;
  const int count = checked_count(total, *operation);
  memory = operation->allocate(total);  // zeros
  if (!text.empty()) std::memcpy(memory + before, text.data(), text.size());
  CONVOY_MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, memory, count, MPI_BYTE, MPI_BOR, comm_, operation->add_request()));
  operation->wait();
  for (std::size_t i = 0, at = 0; i < members; at += lengths[i++]) {
    texts[i].assign(reinterpret_cast<const char*>(memory) + at, lengths[i]);
  }
  return texts;
}

// First the length, then the bytes in pieces, each through memory that the operation owns.
void MpiCommunicator::send_bytes(std::span<const std::byte> bytes, int peer, const std::string& what) {
  auto operation = start_message("send to", peer, kBytesTag, what);
  const std::uint64_t length = bytes.size();
  auto* header = operation->allocate(sizeof length);
  std::memcpy(header, &length, sizeof length);
  CONVOY_MPI_CHECK(MPI_Isend(header, sizeof length, MPI_BYTE, peer, kBytesTag, comm_, operation->add_request()));
  operation->wait();
  for (std::size_t first = 0; first < length; first += kBytesPiece) {
    const std::size_t count = std::min(kBytesPiece, bytes.size() - first);
    auto* piece = operation->allocate(count);
    std::memcpy(piece, bytes.data() + first, count);
    CONVOY_MPI_CHECK(
        MPI_Isend(piece, static_cast<int>(count), MPI_BYTE, peer, kBytesTag, comm_, operation->add_request()));
    operation->wait();
  }
}

std::vector<std::byte> MpiCommunicator::receive_bytes(int peer, const std::string& what) {
  auto operation = start_message("receive from", peer, kBytesTag, what);
  std::uint64_t length = 0;
  auto* header = operation->allocate(sizeof length);
  CONVOY_MPI_CHECK(MPI_Irecv(header, sizeof length, MPI_BYTE, peer, kBytesTag, comm_, operation->add_request()));
  operation->wait();
  std::memcpy(&length, header, sizeof length);
  std::vector<std::byte> bytes(length);
  for (std::size_t first = 0; first < length; first += kBytesPiece) {
    const std::size_t count = std::min(kBytesPiece, bytes.size() - first);
    auto* piece = operation->allocate(count);
    CONVOY_MPI_CHECK(
        MPI_Irecv(piece, static_cast<int>(count), MPI_BYTE, peer, kBytesTag, comm_, operation->add_request()));
    operation->wait();
    std::memcpy(bytes.data() + first, piece, count);
  }
  return bytes;
}

void MpiCommunicator::barrier(const std::string& what) {
  auto operation = start_collective("barrier", what);
  if (size() == 1) return;
  CONVOY_MPI_CHECK(MPI_Ibarrier(comm_, operation->add_request()));
  operation->wait();
}

}  // namespace convoy
