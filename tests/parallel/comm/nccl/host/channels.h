// SPDX-License-Identifier: Apache-2.0
//
// Shared memory between the ranks of an imitated NCCL communicator: a channel for each direction of each pair, through
// which messages go in pieces. Both ends of a message announce it first. Neither is done before all is received.
// Relies on Linux's memfd and /proc/PID/fd, so that no file is left behind.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace convoy::on_host {

/// What an operation was called with; its ranks must agree.
struct Call {
  enum class Kind : std::int32_t { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kMessage };
  Kind kind = Kind::kMessage;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  std::int32_t root = 0;
  std::uint64_t count = 0;

  bool operator==(const Call& other) const = default;
  /// "all_reduce of 5 elements of type 7, reduction 0, root 0"
  [[nodiscard]] std::string str() const;
  [[nodiscard]] std::size_t bytes() const;
};

/// Written by the sender up to `written`, by the receiver up to `read`; all zero at first.
struct Channel {
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  std::atomic<bool> sender_connects, receiver_connects;
  std::atomic<std::uint64_t> offered, accepted;  // messages
  std::atomic<std::uint64_t> written, read;      // pieces
  Call call;                                     // of the message offered last
  std::byte piece[kPieceBytes];
};

class Channels {
 public:
  /// Memory for a new communicator, as an id that can travel.
  static ncclUniqueId create();
  Channels(const ncclUniqueId& id, int size);
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  [[nodiscard]] bool valid() const { return memory_ != nullptr; }
  void join();
  [[nodiscard]] bool all_joined() const;
  [[nodiscard]] Channel& between(int from, int to) const;

 private:
  struct Memory;
  Memory* memory_ = nullptr;
  std::size_t bytes_ = 0;
  int size_;
};

/// One message as one of its ends sees it.
class Transfer {
 public:
  Transfer(Channel& channel, bool sends, const Call& call) : channel_(channel), call_(call), sends_(sends) {}
  [[nodiscard]] bool sends() const { return sends_; }

  void announce();
  /// Whether the other end has announced it, too.
  [[nodiscard]] bool matched() const;
  /// What the other end was called with; of a receiver.
  [[nodiscard]] const Call& offered() const { return channel_.call; }

  /// The bytes to send, or room for those that come; set once it has matched.
  std::vector<std::byte> data;
  /// Moves pieces as far as the other end allows; true when the message is over.
  bool move();

 private:
  Channel& channel_;
  Call call_;
  bool sends_;
  std::uint64_t number_ = 0;      // of the message in the channel
  std::size_t moved_ = 0;         // bytes
  std::uint64_t last_piece_ = 0;  // written or read
};

}  // namespace convoy::on_host
