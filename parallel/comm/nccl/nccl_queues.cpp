// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/nccl/nccl_queues.h"

#include <functional>

#include "layers/backend/cuda/cuda_check.h"
#include "layers/base/error.h"
#include "parallel/comm/nccl/nccl_pairs.h"
#include "parallel/comm/nccl/nccl_setup.h"
#include "parallel/watchdog/watchdog.h"

namespace convoy {

namespace {

// Of the GPU's many processors, for each of up to four message queues: a kernel that waits for a message must leave
// capacity for computations.
constexpr int kMessageBlocks = 8;
constexpr double kWaitingSeconds = 0.1;  // of waiting for the GPU before this rank counts as one that waits for others

}  // namespace

NcclQueues::NcclQueues(Communicator& host, CudaBackend& backend, std::shared_ptr<const NcclIdentity> identity,
                       const NcclOptions& options)
    : host_(host), backend_(backend), state_(backend.state()), options_(options), identity_(std::move(identity)) {
  if (identity_->size > 1) {
    prepare_nccl(options_);
    if (options_.collectives) make_collectives();
    if (options_.messages) make_messages();
  }
  state_.while_waiting.emplace_back(WaitCheck{this});
}

NcclQueues::~NcclQueues() {
  std::erase_if(state_.while_waiting, [this](const std::function<void(double)>& function) {
    const auto* check = function.target<WaitCheck>();
    return check != nullptr && check->owner == this;
  });
}

void NcclQueues::make_collectives() {
  const std::string id = host_.broadcast(identity_->rank == 0 ? new_nccl_id() : std::string(), 0, "NCCL id");
  const NcclQueue::Settings settings{identity_->rank, identity_->size, options_.high_priority, 0};
  collectives_ = std::make_unique<NcclQueue>(state_, identity_, events_, id, settings);
}

// The first rank of a pair makes the ids of both directions. All ranks go through the pairs in one order, and the two
// of a pair do the same things in the same order, so that neither waits for the other forever.
void NcclQueues::make_messages() {
  const int rank = identity_->rank;
  const std::vector<std::pair<int, int>> pairs = ring_pairs(identity_->size);
  std::string own;
  for (const auto& [first, second] : pairs) {
    if (first == rank) own = new_nccl_id() + new_nccl_id();
  }
  const std::vector<std::string> ids = host_.all_gather(own, "NCCL ids");
  for (const auto& [first, second] : pairs) {
    if (first != rank && second != rank) continue;
    const std::string& both = ids[static_cast<std::size_t>(first)];
    make_direction(both.substr(0, both.size() / 2), first, second);
    make_direction(both.substr(both.size() / 2), second, first);
  }
}

// Makes the queue of one direction, in which the sender is rank 0, and sends a byte through it: NCCL connects two ranks
// at their first message and holds up the host meanwhile, here where both are waiting for it.
void NcclQueues::make_direction(const std::string& id, int from, int to) {
  const bool sends = from == identity_->rank;
  const NcclQueue::Settings settings{sends ? 0 : 1, 2, options_.high_priority, kMessageBlocks};
  auto& queue = sends ? outgoing_[to] : incoming_[from];
  queue = std::make_unique<NcclQueue>(state_, identity_, events_, id, settings);
  const Tensor byte = backend_.tensor({1}, DType::kU8);
  const int peer = sends ? to : from;
  const auto first =
      flight({fmt::format("{} rank {}", sends ? "send to" : "receive from", peer), 0, "one byte", true, peer});
  put(*queue, first, [&](ncclComm_t comm, cudaStream_t stream) {
    return sends ? ncclSend(byte.raw(), 1, ncclUint8, 1, comm, stream)
                 : ncclRecv(byte.raw(), 1, ncclUint8, 0, comm, stream);
  });
  NcclOperation(state_, first, byte, Tensor()).wait();
}

std::shared_ptr<NcclWork> NcclQueues::flight(OperationName name) {
  auto flight = std::make_shared<NcclWork>(identity_, events_, std::move(name), state_.capturing());
  flight->serial = ++serial_;
  return flight;
}

void NcclQueues::put(NcclQueue& queue, const std::shared_ptr<NcclWork>& flight, const NcclQueue::Start& start) {
  queue.put(flight, start);
  if (flight->captured) recorded_ = flight->label();
}

std::vector<NcclQueue*> NcclQueues::all() const {
  std::vector<NcclQueue*> queues;
  if (collectives_) queues.push_back(collectives_.get());
  for (const ByPeer* side : {&outgoing_, &incoming_}) {
    for (const auto& [peer, queue] : *side) queues.push_back(queue.get());
  }
  return queues;
}

void NcclQueues::check(double seconds) {
  const std::vector<NcclQueue*> queues = all();
  try {
    for (NcclQueue* queue : queues) queue->check();
    if (seconds > kWaitingSeconds) take_part(seconds);
    waited_ = seconds;
    if (seconds > options_.timeout) check_late(seconds);
  } catch (...) {
    for (NcclQueue* queue : queues) queue->abort();
    throw;
  }
}

// A host that has waited for a while notes that, and answers questions of other ranks.
void NcclQueues::take_part(double seconds) {
  const bool first = waited_ <= kWaitingSeconds || seconds < waited_;
  const NcclWork* flight = first ? oldest() : nullptr;
  if (flight != nullptr) {
    identity_->watched.note(RankState::kWaiting, flight->name);
  } else if (first && !recorded_.empty()) {
    identity_->watched.note(RankState::kWaiting, OperationName{"recorded step", 0, recorded_});
  }
  if (Watchdog::current() != nullptr) Watchdog::current()->serve();
}

const NcclWork* NcclQueues::oldest() const {
  const NcclWork* oldest = nullptr;
  for (NcclQueue* queue : all()) {
    const NcclWork* flight = queue->oldest();
    if (flight != nullptr && (oldest == nullptr || flight->serial < oldest->serial)) oldest = flight;
  }
  return oldest;
}

// The counts of replayed operations are those of the recording on all ranks: for them only the ranks' states tell.
void NcclQueues::check_late(double seconds) {
  const NcclWork* late = oldest();
  if (late == nullptr && recorded_.empty()) return;  // what the GPU is at is not ours
  const std::string label = late != nullptr ? late->label() : "a recorded step with " + recorded_;
  fail_late(identity_->watched.late(late != nullptr ? late->name : OperationName{},
                                    fmt::format("{}, {},", label, current_gpu()), seconds));
}

}  // namespace convoy
