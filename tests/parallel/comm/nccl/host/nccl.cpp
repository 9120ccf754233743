// SPDX-License-Identifier: Apache-2.0
//
// NCCL's calls. About half of them are in progress when they return, and put their work on the stream when they are
// asked about; the first message between two ranks does so when both have called it, as NCCL makes a connection then.
#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/layers/backend/cuda/host/streams.h"
#include "tests/parallel/comm/nccl/host/channels.h"
#include "tests/parallel/comm/nccl/host/operation.h"

using namespace convoy::on_host;

struct ncclComm {
  struct Launch {
    Operation operation;
    cudaStream_t stream;
    std::size_t polls;  // that it stays in progress
  };
  std::shared_ptr<Member> member;
  bool started = false, finalizing = false;
  std::unique_ptr<Launch> launch;  // that is in progress
  ncclResult_t error = ncclSuccess;
};

namespace {

struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  Operation operation;
};
Group group;
std::string last_error;

Scheduler& scheduler() { return Scheduler::instance(); }

ncclResult_t refuse(ncclComm_t comm, ncclResult_t error, std::string words) {
  last_error = std::move(words);
  return comm->error = error;
}

std::atomic<bool>& connects(const ncclComm& comm, const Operation::Message& message, bool sender) {
  const int own = comm.member->rank, from = message.sends ? own : message.peer, to = message.sends ? message.peer : own;
  Channel& channel = comm.member->channels.between(from, to);
  return sender ? channel.sender_connects : channel.receiver_connects;
}

// Notes that this rank calls the messages of an operation; true when the other ends have called such messages once.
bool connected(const ncclComm& comm, const Operation& operation) {
  bool all = true;
  for (const Operation::Message& message : operation.messages) {
    connects(comm, message, message.sends) = true;
    all = all && (message.call.kind != Call::Kind::kMessage || connects(comm, message, !message.sends));
  }
  return all;
}

ncclResult_t put(ncclComm_t comm, Operation operation, cudaStream_t stream) {
  const std::string name = operation.call.str();
  const cudaError_t status = enqueue_locked(stream, name, Operation::work(comm->member, std::move(operation)));
  if (status == cudaSuccess) return ncclSuccess;
  return refuse(comm, ncclUnhandledCudaError, cudaGetErrorString(status));
}

ncclResult_t begin(ncclComm_t comm, Operation operation, cudaStream_t stream) {
  if (comm->error != ncclSuccess) return comm->error;
  if (!comm->started || comm->finalizing || comm->launch != nullptr) {
    return refuse(comm, ncclInvalidUsage, "a call while another of the same communicator is in progress");
  }
  const std::size_t polls = scheduler().random(2) * scheduler().random(4);
  if (polls == 0 && connected(*comm, operation)) return put(comm, std::move(operation), stream);
  comm->launch = std::make_unique<ncclComm::Launch>(ncclComm::Launch{std::move(operation), stream, polls});
  return ncclInProgress;
}

ncclResult_t collective(Call call, const void* from, void* to, ncclComm_t comm, cudaStream_t stream) {
  const std::lock_guard lock(scheduler().mutex);
  const int rank = comm->member->rank;
  const bool all = call.kind == Call::Kind::kAllReduce, broadcast = call.kind == Call::Kind::kBroadcast;
  if (broadcast && from != to) return refuse(comm, ncclInvalidArgument, "only broadcasts in place are imitated");
  Operation operation{call, from, to, {}};
  for (int peer = 0; peer < comm->member->size; ++peer) {
    if (peer == rank) continue;
    const bool sends = all || (broadcast ? rank : peer) == call.root;
    const bool receives = all || (broadcast ? peer : rank) == call.root;
    if (sends) operation.messages.push_back({true, peer, from, nullptr, call});
    if (receives) operation.messages.push_back({false, peer, nullptr, to, call});
  }
  return begin(comm, std::move(operation), stream);
}

// Own and other parts of an all-gather or a reduce-scatter; `from` and `to` are this rank's.
ncclResult_t parts(Call call, const void* from, void* to, ncclComm_t comm, cudaStream_t stream) {
  const std::lock_guard lock(scheduler().mutex);
  const auto rank = static_cast<std::size_t>(comm->member->rank), size = static_cast<std::size_t>(comm->member->size);
  const bool gathers = call.kind == Call::Kind::kAllGather;
  const auto sent = [&](std::size_t peer) {
    return static_cast<const std::byte*>(from) + (gathers ? 0 : peer * call.bytes());
  };
  const auto received = [&](std::size_t peer) {
    return static_cast<std::byte*>(to) + (gathers ? peer * call.bytes() : 0);
  };
  Operation operation{call, sent(rank), received(rank), {}};
  for (std::size_t peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const int other = static_cast<int>(peer);
    operation.messages.push_back({true, other, sent(peer), nullptr, call});
    operation.messages.push_back({false, other, nullptr, received(peer), call});
  }
  return begin(comm, std::move(operation), stream);
}

ncclResult_t message(bool sends, int peer, const void* from, void* to, std::size_t count, ncclDataType_t type,
                     ncclComm_t comm, cudaStream_t stream) {
  const std::lock_guard lock(scheduler().mutex);
  if (peer < 0 || peer >= comm->member->size || peer == comm->member->rank) {
    return refuse(comm, ncclInvalidArgument, "a message to a rank that there is not, or to itself");
  }
  const Call call{Call::Kind::kMessage, type, ncclSum, 0, count};
  Operation::Message one{sends, peer, from, to, call};
  if (group.depth == 0) return begin(comm, {call, nullptr, nullptr, {one}}, stream);
  if (group.comm != nullptr && (group.comm != comm || group.stream != stream)) {
    return refuse(comm, ncclInvalidUsage, "groups of several communicators or streams are not imitated");
  }
  group.comm = comm;
  group.stream = stream;
  group.operation.call = call;
  group.operation.messages.push_back(one);
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    default: return "NCCL operation in progress";
  }
}
const char* ncclGetLastError(ncclComm_t /*comm*/) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = Channels::create();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const std::lock_guard lock(scheduler().mutex);
  if (config->blocking != 0) return ncclInvalidArgument;  // not imitated
  *comm = new ncclComm{};
  (*comm)->member = std::make_shared<Member>(id, size, rank);
  if (!(*comm)->member->channels.valid()) return refuse(*comm, ncclSystemError, "the ranks share no memory");
  (*comm)->member->channels.join();
  scheduler().work_in_background();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::lock_guard lock(scheduler().mutex);
  *error = ncclInProgress;
  if (!comm->member->failure.empty()) {
    refuse(comm, ncclInvalidUsage, comm->member->failure + " (" + scheduler().seed_text() + ")");
  }
  if (comm->error != ncclSuccess) {
    *error = comm->error;
  } else if (!comm->started) {
    comm->started = comm->member->channels.all_joined();
  } else if (comm->launch != nullptr) {
    ncclComm::Launch& launch = *comm->launch;
    if (launch.polls > 0) --launch.polls;
    if (launch.polls == 0 && connected(*comm, launch.operation)) {
      const std::unique_ptr<ncclComm::Launch> now = std::move(comm->launch);
      *error = put(comm, std::move(now->operation), now->stream);
    } else {
      scheduler().drain();
    }
  } else if (!comm->finalizing || comm->member.use_count() == 1) {
    *error = ncclSuccess;
  } else {
    scheduler().drain();
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(scheduler().mutex);
  comm->finalizing = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(scheduler().mutex);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(scheduler().mutex);
  comm->member->aborted = true;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective({Call::Kind::kAllReduce, type, op, 0, count}, from, to, comm, stream);
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return collective({Call::Kind::kReduce, type, op, root, count}, from, comm->member->rank == root ? to : nullptr, comm,
                    stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective({Call::Kind::kBroadcast, type, ncclSum, root, count}, from, to, comm, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return parts({Call::Kind::kAllGather, type, ncclSum, 0, count}, from, to, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return parts({Call::Kind::kReduceScatter, type, op, 0, count}, from, to, comm, stream);
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(true, peer, from, nullptr, count, type, comm, stream);
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(false, peer, nullptr, to, count, type, comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const std::lock_guard lock(scheduler().mutex);
  if (--group.depth > 0) return ncclSuccess;
  Group whole = std::exchange(group, Group{});
  return whole.comm == nullptr ? ncclSuccess : begin(whole.comm, std::move(whole.operation), whole.stream);
}
