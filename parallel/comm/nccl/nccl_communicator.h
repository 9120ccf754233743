// SPDX-License-Identifier: Apache-2.0
//
// Communicator over device memory: NCCL collectives and sends on streams of their own, ordered against the backend's
// compute stream by events, so that the host never waits: wait() makes the compute stream wait. Host-side exchanges
// go over the MPI communicator that it was made from. NCCL is initialised without blocking, its asynchronous errors
// and the deadline are checked whenever the host waits for the GPU; the communicator is then aborted and the Error
// names the operation. Works while the compute stream is recorded into a graph; recorded work that uses a communicator
// ends before it (NCCL waits for that). Invariant: members call the same collectives in the same order.
//
// Messages pass between neighbours on the ring of ranks, each direction of each pair of neighbours through an NCCL
// communicator and a stream of its own (NCCL's own sends hold up whatever comes behind them). Why that cannot
// deadlock, for a schedule that passed check_schedule(): a message waits for what both ends have computed up to where
// they start it, and for the earlier messages of the same direction of the same pair, which both ends start in the
// same order (check_message_order()), whatever their tags. A computation waits for the one before it and for its own
// receive. check_deadlock() has found an order of all actions in which whatever computes comes after the two starts of
// every message that it needs and messages of one direction meet one after the other: that order satisfies every one of
// these waits, also where chunks go both ways (interleaved, zb_v), since nothing here knows a chunk. Two directions in
// one queue would add waits that it knows nothing of. Where CUDA waits for all streams at once (new memory, the first
// launch of a kernel), a computation also waits for every message that its rank started before it: make_schedule()'s
// lists bear that, since sends and receives stand in them in the order of time of one simulation. Connections are made
// when the communicator is, as a first send would hold up the host until its receive.
#pragma once

#include <memory>
#include <string>

#include "layers/backend/cuda/cuda_backend.h"
#include "parallel/comm/communicator.h"

namespace convoy {

struct NcclOptions {
  std::string name;            ///< in reports: "replicas"
  double timeout = 60;         ///< seconds, for start-up and for each wait
  bool high_priority = false;  ///< of the streams: for reductions that overlap with compute
  bool share_gpu = false;      ///< several ranks on one GPU: each tells NCCL another host
  bool deterministic = false;  ///< no sums inside the switches, whose order is not ours
  bool collectives = true;     ///< what it will be used for: each kind takes memory of the GPU
  bool messages = true;
};

/// Over the ranks of `host`, which call this together. `backend` outlives it. The ranks' GPUs differ, or share_gpu is
/// set. The first call of a process sets variables that NCCL reads once (share_gpu, deterministic).
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                                   CudaBackend& backend, const NcclOptions& options);

/// "2.28.9": what runs.
[[nodiscard]] std::string nccl_version();
/// The same of what this program was built with.
[[nodiscard]] std::string nccl_built_version();

}  // namespace convoy
