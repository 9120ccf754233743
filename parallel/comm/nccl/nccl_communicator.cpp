// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/nccl/nccl_communicator.h"

#include <nccl.h>

#include <functional>
#include <utility>

#include "layers/backend/cuda/cuda_check.h"
#include "layers/base/host_name.h"
#include "parallel/base/mpi_check.h"
#include "parallel/comm/nccl/nccl_queues.h"

namespace convoy {

namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return ncclFloat32;
    case DType::kF64: return ncclFloat64;
    case DType::kBF16: return ncclBfloat16;
    case DType::kF16: return ncclFloat16;
    case DType::kU8: return ncclUint8;
    case DType::kI64: return ncclInt64;
  }
  fail("unknown element type {}", static_cast<int>(dtype));
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return ncclSum;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kMin: return ncclMin;
  }
  fail("unknown reduction {}", static_cast<int>(op));
}

std::size_t count(const Tensor& buffer) { return static_cast<std::size_t>(buffer.size()); }

std::byte* piece(const Tensor& whole, const Tensor& part, int index) {
  return whole.data<std::byte>() + part.bytes() * static_cast<std::size_t>(index);
}

bool started(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

// each(peer) for all ranks but `root`, as one NCCL operation.
ncclResult_t with_others(int size, int root, const std::function<ncclResult_t(int)>& each) {
  ncclResult_t result = ncclGroupStart();
  if (!started(result)) return result;
  for (int peer = 0; peer < size && started(result); ++peer) {
    if (peer != root) result = each(peer);
  }
  const ncclResult_t ended = ncclGroupEnd();  // after a failure, too
  return started(result) ? ended : result;
}

std::shared_ptr<const NcclIdentity> identity_of(Communicator& host, const NcclOptions& options) {
  std::vector<int> members;
  int world_rank = 0;
  CONVOY_MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
  for (const std::string& rank : host.all_gather(std::to_string(world_rank), "world ranks")) {
    members.push_back(std::stoi(rank));
  }
  auto identity = std::make_shared<NcclIdentity>(options.name, std::move(members));
  identity->rank = host.rank();
  identity->size = host.size();
  identity->host = host_name();
  identity->timeout = options.timeout;
  return identity;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, CudaBackend& backend, const NcclOptions& options)
      : host_(std::move(host)),
        state_(backend.state()),
        queues_(*host_, backend, identity_of(*host_, options), options) {}

  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }

  Pending all_reduce(const Tensor& buffer, ReduceOp op, const std::string& what) override {
    const Flight flight = collective("all_reduce", 0, what);
    check_buffer(buffer, *flight);
    return start(collectives(*flight), flight, buffer, Tensor(), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(buffer.raw(), buffer.raw(), count(buffer), nccl_type(buffer.dtype()), nccl_op(op), comm,
                           stream);
    });
  }

  Pending broadcast(const Tensor& buffer, int root, const std::string& what) override {
    const Flight flight = collective("broadcast", root, what);
    check_buffer(buffer, *flight);
    return start(collectives(*flight), flight, buffer, Tensor(), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(buffer.raw(), buffer.raw(), count(buffer), nccl_type(buffer.dtype()), root, comm, stream);
    });
  }

  Pending reduce(const Tensor& buffer, ReduceOp op, int root, const std::string& what) override {
    const Flight flight = collective("reduce", root, what);
    check_buffer(buffer, *flight);
    return start(collectives(*flight), flight, buffer, Tensor(), [&](ncclComm_t comm, cudaStream_t stream) {
      void* result = rank() == root ? buffer.raw() : nullptr;
      return ncclReduce(buffer.raw(), result, count(buffer), nccl_type(buffer.dtype()), nccl_op(op), root, comm,
                        stream);
    });
  }

  Pending scatter(const Tensor& whole, const Tensor& part, int root, const std::string& what) override {
    const Flight flight = collective("scatter", root, what);
    check_parts(whole, part, root, *flight);
    if (size() == 1) {
      copy_own(part.raw(), whole.raw(), part.bytes(), state_.stream);
      return std::make_unique<NcclOperation>();
    }
    return start(collectives(*flight), flight, part, whole, [&](ncclComm_t comm, cudaStream_t stream) {
      if (rank() != root) return ncclRecv(part.raw(), count(part), nccl_type(part.dtype()), root, comm, stream);
      copy_own(part.raw(), piece(whole, part, root), part.bytes(), stream);
      return with_others(size(), root, [&](int peer) {
        return ncclSend(piece(whole, part, peer), count(part), nccl_type(part.dtype()), peer, comm, stream);
      });
    });
  }

  Pending gather(const Tensor& part, const Tensor& whole, int root, const std::string& what) override {
    const Flight flight = collective("gather", root, what);
    check_parts(whole, part, root, *flight);
    if (size() == 1) {
      copy_own(whole.raw(), part.raw(), part.bytes(), state_.stream);
      return std::make_unique<NcclOperation>();
    }
    return start(collectives(*flight), flight, part, whole, [&](ncclComm_t comm, cudaStream_t stream) {
      if (rank() != root) return ncclSend(part.raw(), count(part), nccl_type(part.dtype()), root, comm, stream);
      copy_own(piece(whole, part, root), part.raw(), part.bytes(), stream);
      return with_others(size(), root, [&](int peer) {
        return ncclRecv(piece(whole, part, peer), count(part), nccl_type(part.dtype()), peer, comm, stream);
      });
    });
  }

  Pending all_gather(const Tensor& part, const Tensor& whole, const std::string& what) override {
    const Flight flight = collective("all_gather", 0, what);
    check_parts(whole, part, rank(), *flight);
    if (size() == 1) {
      copy_own(whole.raw(), part.raw(), part.bytes(), state_.stream);
      return std::make_unique<NcclOperation>();
    }
    return start(collectives(*flight), flight, part, whole, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(part.raw(), whole.raw(), count(part), nccl_type(part.dtype()), comm, stream);
    });
  }

  Pending reduce_scatter(const Tensor& whole, const Tensor& part, const std::string& what) override {
    const Flight flight = collective("reduce_scatter", 0, what);
    check_parts(whole, part, rank(), *flight);
    if (size() == 1) {
      copy_own(part.raw(), whole.raw(), part.bytes(), state_.stream);
      return std::make_unique<NcclOperation>();
    }
    return start(collectives(*flight), flight, part, whole, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(whole.raw(), part.raw(), count(part), nccl_type(part.dtype()), ncclSum, comm, stream);
    });
  }

  // Tags are not needed: each direction has a queue of its own, and both ends know the order of what passes through.
  Pending send(const Tensor& buffer, int peer, int tag, const std::string& what) override {
    const Flight flight = message("send to", peer, tag, what);
    check_buffer(buffer, *flight);
    return start(queues_.to(peer), flight, buffer, Tensor(), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclSend(buffer.raw(), count(buffer), nccl_type(buffer.dtype()), 1, comm, stream);
    });
  }

  Pending receive(const Tensor& buffer, int peer, int tag, const std::string& what) override {
    const Flight flight = message("receive from", peer, tag, what);
    check_buffer(buffer, *flight);
    return start(queues_.from(peer), flight, buffer, Tensor(), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclRecv(buffer.raw(), count(buffer), nccl_type(buffer.dtype()), 0, comm, stream);
    });
  }

  void all_reduce(std::span<double> values, ReduceOp op, const std::string& what) override {
    host_->all_reduce(values, op, what);
  }
  std::string broadcast(std::string text, int root, const std::string& what) override {
    return host_->broadcast(std::move(text), root, what);
  }
  std::vector<std::string> all_gather(const std::string& text, const std::string& what) override {
    return host_->all_gather(text, what);
  }
  void send_bytes(std::span<const std::byte> bytes, int peer, const std::string& what) override {
    host_->send_bytes(bytes, peer, what);
  }
  std::vector<std::byte> receive_bytes(int peer, const std::string& what) override {
    return host_->receive_bytes(peer, what);
  }
  void barrier(const std::string& what) override { host_->barrier(what); }

 private:
  using Flight = std::shared_ptr<NcclWork>;

  Flight collective(const char* kind, int root, const std::string& what) {
    Flight flight = queues_.flight({kind, ++collectives_, what});
    if (root < 0 || root >= size()) fail("{}: root {} is not a rank of it", flight->label(), root);
    return flight;
  }

  Flight message(const char* kind, int peer, int tag, const std::string& what) {
    Flight flight = queues_.flight({fmt::format("{} rank {}", kind, peer), ++messages_, what, true, peer, tag});
    if (queues_.to(peer) == nullptr) {
      fail("{}: rank {} of {} has no such neighbour to exchange messages with", flight->label(), rank(), size());
    }
    return flight;
  }

  // Null when there is one rank.
  NcclQueue* collectives(const NcclWork& flight) const {
    NcclQueue* queue = queues_.collectives();
    if (queue == nullptr && size() > 1) fail("{}: the communicator was made for messages alone", flight.label());
    return queue;
  }

  Pending start(NcclQueue* queue, const Flight& flight, const Tensor& first, const Tensor& second,
                const NcclQueue::Start& call) {
    if (queue == nullptr || first.size() == 0) return std::make_unique<NcclOperation>();
    queues_.put(*queue, flight, call);
    return std::make_unique<NcclOperation>(state_, flight, first, second);
  }

  static void check_buffer(const Tensor& buffer, const NcclWork& flight) {
    if (!buffer) fail("{} has no buffer", flight.label());
  }

  void check_parts(const Tensor& whole, const Tensor& part, int root, const NcclWork& flight) const {
    check_buffer(part, flight);
    if (rank() != root) return;
    check_buffer(whole, flight);
    if (part.size() * size() == whole.size() && part.dtype() == whole.dtype()) return;
    fail("{}: {} {} is not {} times {} {}", flight.label(), dtype_name(whole.dtype()), whole.shape().str(), size(),
         dtype_name(part.dtype()), part.shape().str());
  }

  // The root's part may be its own piece of the whole.
  static void copy_own(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    if (to == from || bytes == 0) return;
    CONVOY_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
  }

  std::unique_ptr<Communicator> host_;
  CudaState& state_;
  NcclQueues queues_;
  std::uint64_t collectives_ = 0, messages_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, CudaBackend& backend,
                                                     const NcclOptions& options) {
  return std::make_unique<NcclCommunicator>(std::move(host), backend, options);
}

}  // namespace convoy
