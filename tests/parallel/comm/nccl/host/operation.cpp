// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/comm/nccl/host/operation.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/layers/backend/cuda/host/device_memory.h"

namespace convoy::on_host {

namespace {

using Bytes = std::vector<std::byte>;

template <class T>
T combined(T a, T b, ncclRedOp_t op) {
  if (op == ncclMax) return b > a ? b : a;
  if (op == ncclMin) return b < a ? b : a;
  return static_cast<T>(a + b);
}

template <class T>
void combine(std::byte* result, const std::byte* other, std::size_t count, ncclRedOp_t op) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, result + i * sizeof(T), sizeof(T));
    std::memcpy(&b, other + i * sizeof(T), sizeof(T));
    if constexpr (std::is_arithmetic_v<T>) {
      a = combined(a, b, op);
    } else {
      a = T(combined(static_cast<float>(a), static_cast<float>(b), op));
    }
    std::memcpy(result + i * sizeof(T), &a, sizeof(T));
  }
}

void combine(Bytes& result, const Bytes& other, const Call& call) {
  const auto with = [&](auto type) {
    combine<decltype(type)>(result.data(), other.data(), static_cast<std::size_t>(call.count), call.op);
  };
  switch (call.type) {
    case ncclUint8: return with(std::uint8_t());
    case ncclInt64: return with(std::int64_t());
    case ncclFloat16: return with(__half());
    case ncclBfloat16: return with(__nv_bfloat16());
    case ncclFloat32: return with(float());
    case ncclFloat64: return with(double());
  }
}

/// One run of an operation.
class Run {
 public:
  Run(Member& member, const Operation& operation) : member_(member), operation_(operation) {
    for (const Operation::Message& m : operation.messages) {
      const int from = m.sends ? member.rank : m.peer, to = m.sends ? m.peer : member.rank;
      transfers_.emplace_back(member.channels.between(from, to), m.sends, m.call);
    }
  }

  Progress attempt() {
    if (member_.aborted || failed_) return Progress::kDone;
    if (!announced_) {
      if (member_.running != nullptr)
        return fail("two operations of one communicator run at once: nothing orders them");
      member_.running = this;
      for (Transfer& transfer : transfers_) transfer.announce();
      announced_ = true;
    }
    if (!begun_) {
      for (const Transfer& transfer : transfers_) {
        if (!transfer.matched()) return Progress::kNotYet;
      }
      if (Scheduler::instance().chance(0.3)) return Progress::kNotYet;  // late, though all are there
      if (!begin()) return Progress::kDone;
    }
    bool over = true;
    for (Transfer& transfer : transfers_) over = transfer.move() && over;
    if (!over) return Progress::kNotYet;
    member_.running = nullptr;
    end();
    return Progress::kDone;
  }

 private:
  Progress fail(std::string words) {
    if (member_.running == this) member_.running = nullptr;
    member_.failure = std::move(words);
    failed_ = true;
    return Progress::kDone;
  }

  bool is_there(const void* data, std::size_t bytes) {
    if (bytes == 0 || is_device_memory(data, bytes)) return true;
    fail(fmt::format("{} at memory that is not the device's, or was freed", operation_.call.str()));
    return false;
  }

  // Reads what is sent.
  bool begin() {
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      const Operation::Message& message = operation_.messages[i];
      Transfer& transfer = transfers_[i];
      if (!transfer.sends() && transfer.offered() != message.call) {
        fail(fmt::format("rank {} calls {}, and rank {} {}", member_.rank, message.call.str(), message.peer,
                         transfer.offered().str()));
        return false;
      }
      transfer.data.resize(message.call.bytes());
      if (!transfer.sends()) continue;
      if (!is_there(message.from, transfer.data.size())) return false;
      std::memcpy(transfer.data.data(), message.from, transfer.data.size());
    }
    if ((reduces() || operation_.call.kind == Call::Kind::kAllGather) && operation_.to != nullptr) {
      if (!is_there(operation_.from, operation_.call.bytes())) return false;
      own_.resize(operation_.call.bytes());
      std::memcpy(own_.data(), operation_.from, own_.size());
    }
    begun_ = true;
    return true;
  }

  void end() {
    if (reduces()) return end_reduction();
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      const Operation::Message& message = operation_.messages[i];
      if (!message.sends) set(message.to, transfers_[i].data);
    }
    if (operation_.call.kind == Call::Kind::kAllGather) set(operation_.to, own_);
  }

  // In the order of ranks, so that all get the same bits.
  void end_reduction() {
    if (operation_.to == nullptr) return;
    std::vector<const Bytes*> parts(static_cast<std::size_t>(member_.size), &own_);
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      if (!transfers_[i].sends()) parts[static_cast<std::size_t>(operation_.messages[i].peer)] = &transfers_[i].data;
    }
    Bytes result = *parts.front();
    for (std::size_t rank = 1; rank < parts.size(); ++rank) combine(result, *parts[rank], operation_.call);
    set(operation_.to, result);
  }

  void set(void* to, const Bytes& data) {
    if (is_there(to, data.size())) std::memcpy(to, data.data(), data.size());
  }

  [[nodiscard]] bool reduces() const {
    using Kind = Call::Kind;
    const Kind kind = operation_.call.kind;
    return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
  }

  Member& member_;
  const Operation& operation_;
  std::vector<Transfer> transfers_;
  Bytes own_;
  bool announced_ = false, begun_ = false, failed_ = false;
};

}  // namespace

Work Operation::work(std::shared_ptr<Member> member, Operation operation) {
  return [member = std::move(member), operation = std::move(operation)](std::shared_ptr<void>& state) {
    if (state == nullptr) state = std::make_shared<Run>(*member, operation);
    return std::static_pointer_cast<Run>(state)->attempt();
  };
}

}  // namespace convoy::on_host
