// SPDX-License-Identifier: Apache-2.0
//
// One operation of an imitated NCCL communicator on this rank, as work of a stream: it ends when all ranks that it
// needs have come to theirs. Memory is read when all have come, and written at the end.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/layers/backend/cuda/host/scheduler.h"
#include "tests/parallel/comm/nccl/host/channels.h"

namespace convoy::on_host {

/// This rank in a communicator. Held by the handle, and by work and graphs that use it.
struct Member {
  Member(const ncclUniqueId& id, int its_size, int its_rank) : channels(id, its_size), size(its_size), rank(its_rank) {}
  Channels channels;
  int size, rank;
  const void* running = nullptr;  ///< the operation under way: one at a time
  bool aborted = false;
  std::string failure;  ///< of an operation, in words; empty: none has failed
};

/// Collectives send `from` to others and receive from others into one result, messages each have their memory.
struct Operation {
  struct Message {
    bool sends;
    int peer;
    const void* from;
    void* to;
    Call call;
  };
  Call call;  ///< of a collective
  const void* from = nullptr;
  void* to = nullptr;
  std::vector<Message> messages;  ///< of the collective, or by themselves

  /// For a stream.
  static Work work(std::shared_ptr<Member> member, Operation operation);
};

}  // namespace convoy::on_host
