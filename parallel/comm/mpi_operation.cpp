// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/mpi_operation.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "layers/base/error.h"
#include "layers/base/stopwatch.h"
#include "layers/cpu/contention_monitor.h"
#include "parallel/base/mpi_check.h"
#include "parallel/base/wait_time.h"
#include "parallel/watchdog/watchdog.h"

namespace convoy {

namespace {

constexpr double kUnwindSeconds = 0.2;  // enough to complete an operation that all ranks have started
constexpr int kSpins = 64;              // polls before the first sched_yield()
constexpr double kYieldSeconds = 1.0;   // of yielding before sleeping between polls
constexpr double kServeSeconds = 0.1;   // of waiting before it answers other ranks' watchdogs

std::atomic<int> abandoned_count{0};

// The members of a communicator as world ranks.
std::vector<int> world_ranks_of(MPI_Comm comm) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  int size = 0;
  CONVOY_MPI_CHECK(MPI_Comm_size(comm, &size));
  CONVOY_MPI_CHECK(MPI_Comm_group(comm, &group));
  CONVOY_MPI_CHECK(MPI_Comm_group(MPI_COMM_WORLD, &world));
  std::vector<int> own(static_cast<std::size_t>(size));
  std::vector<int> members(own.size());
  std::iota(own.begin(), own.end(), 0);
  CONVOY_MPI_CHECK(MPI_Group_translate_ranks(group, size, own.data(), world, members.data()));
  CONVOY_MPI_CHECK(MPI_Group_free(&world));
  CONVOY_MPI_CHECK(MPI_Group_free(&group));
  return members;
}

}  // namespace

CommunicatorIdentity::CommunicatorIdentity(MPI_Comm comm, const std::string& name, double its_timeout)
    : watched(name, world_ranks_of(comm)), timeout(its_timeout) {
  CONVOY_MPI_CHECK(MPI_Comm_rank(comm, &rank));
  CONVOY_MPI_CHECK(MPI_Comm_size(comm, &size));
}

struct MpiOperation::State {
  std::vector<MPI_Request> requests;
  std::vector<std::int64_t> expected_bytes;  // of each request; -1: not checked
  std::size_t done = 0;                      // requests before this one are complete
  std::function<bool()> condition;           // empty once it was true
  std::vector<Tensor> tensors;
  std::unique_ptr<std::byte[]> storage;
  State* next_abandoned = nullptr;

  static std::atomic<State*> abandoned;  // keeps the memory reachable for leak checkers
};
std::atomic<MpiOperation::State*> MpiOperation::State::abandoned{nullptr};

int abandoned_operations() noexcept { return abandoned_count.load(); }

MpiOperation::MpiOperation(std::shared_ptr<CommunicatorIdentity> owner, OperationName name)
    : owner_(std::move(owner)),
      name_(std::move(name)),
      state_(std::make_unique<State>()),
      exceptions_at_start_(std::uncaught_exceptions()) {
  owner_->watched.note(RankState::kStarted, name_);
}

MpiOperation::~MpiOperation() {
  try {
    if (complete()) return;
    const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
    double patience = unwinding ? kUnwindSeconds : owner_->timeout;
    if (late_ || owner_->abandoned) patience = 0;
    if (poll(patience)) return;
  } catch (...) {
    if (complete()) return;
  }
  owner_->abandoned = true;
  ++abandoned_count;
  State* state = state_.release();
  state->next_abandoned = State::abandoned.load();
  while (!State::abandoned.compare_exchange_weak(state->next_abandoned, state)) {
  }
}

bool MpiOperation::complete() const { return state_->done == state_->requests.size() && !state_->condition; }

MPI_Request* MpiOperation::add_request() {
  state_->requests.push_back(MPI_REQUEST_NULL);
  state_->expected_bytes.resize(state_->requests.size(), -1);
  return &state_->requests.back();
}

void MpiOperation::expect_bytes(std::int64_t bytes) {
  state_->expected_bytes.resize(state_->requests.size(), -1);
  state_->expected_bytes.push_back(bytes);
}

void MpiOperation::until(std::function<bool()> done) { state_->condition = std::move(done); }

void MpiOperation::keep(const Tensor& tensor) { state_->tensors.push_back(tensor); }

std::byte* MpiOperation::allocate(std::size_t bytes) {
  state_->storage = std::make_unique<std::byte[]>(bytes);
  return state_->storage.get();
}

std::string MpiOperation::label() const {
  return fmt::format("{} '{}' ({} on communicator '{}' of {} ranks)", name_.kind, name_.what, name_.number_text(),
                     owner_->watched.name(), owner_->size);
}

bool MpiOperation::test() {
  State& state = *state_;
  if (complete()) return true;
  while (state.done < state.requests.size()) {
    int flag = 0;
    MPI_Status status;
    const int code = MPI_Test(&state.requests[state.done], &flag, &status);
    if (code != MPI_SUCCESS) {
      if (state.requests[state.done] == MPI_REQUEST_NULL) ++state.done;
      fail("MPI failed in {} on {}: {}", label(), mpi_whereabouts(), mpi_error_text(code));
    }
    if (flag == 0) return false;
    const std::int64_t expected = state.expected_bytes[state.done++];
    int bytes = 0;
    if (expected < 0) continue;
    CONVOY_MPI_CHECK(MPI_Get_count(&status, MPI_BYTE, &bytes));
    if (bytes != MPI_UNDEFINED && bytes != expected) {
      fail("{} on {} got {} bytes where {} were expected: the two ranks disagree about shapes", label(),
           mpi_whereabouts(), bytes, expected);
    }
  }
  if (state.condition) {
    if (!state.condition()) {
      int flag = 0;  // unused: the call progresses messages that other ranks may wait for
      CONVOY_MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
      return false;
    }
    state.condition = nullptr;
  }
  state.tensors.clear();
  owner_->watched.note(RankState::kFinished, name_);
  return true;
}

// True once complete, false when `seconds` have gone by.
bool MpiOperation::poll(double seconds) {
  if (test()) return true;
  owner_->watched.note(RankState::kWaiting, name_);
  Stopwatch watch;
  double waited = 0;
  double spent = 0;
  bool done = false;
  for (int round = 0; !done && waited <= seconds; ++round) {
    if (waited > kYieldSeconds || (round > kSpins && cpus_contended())) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    } else if (round > kSpins) {
      sched_yield();  // with more ranks than cores, the awaited rank may need this one
    }
    // A long gap means that this process was stopped (a suspended job): the other ranks then were too.
    const double lap = watch.lap();
    spent += lap;
    waited += std::min(1.0, lap);
    if (waited > kServeSeconds && Watchdog::current() != nullptr) Watchdog::current()->serve();
    done = test();
  }
  add_communication_wait(spent);
  return done;
}

void MpiOperation::wait() {
  if (poll(owner_->timeout)) return;
  late_ = true;
  fail_late(owner_->watched.late(name_, label(), owner_->timeout));
}

}  // namespace convoy
