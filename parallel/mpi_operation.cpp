// SPDX-License-Identifier: Apache-2.0
#include "parallel/mpi_operation.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "layers/base/error.h"
#include "parallel/mpi_check.h"

namespace convoy {

namespace {

constexpr double kUnwindSeconds = 0.2;  // for an operation that all ranks have started: enough to complete
constexpr int kSpins = 64;              // polls before the core is offered to others
constexpr double kYieldSeconds = 1.0;   // of yielding before sleeping between polls

std::atomic<int> abandoned_count{0};

}  // namespace

struct MpiOperation::State {
  std::vector<MPI_Request> requests;
  std::vector<std::int64_t> expected_bytes;  // of each request; -1: not checked
  std::size_t done = 0;                      // requests before this one are complete
  std::vector<Tensor> tensors;
  std::unique_ptr<std::byte[]> storage;
  State* next_abandoned = nullptr;

  static std::atomic<State*> abandoned;  // a list that nobody reads: it only keeps the memory reachable
};
std::atomic<MpiOperation::State*> MpiOperation::State::abandoned{nullptr};

int abandoned_operations() noexcept { return abandoned_count.load(); }

MpiOperation::MpiOperation(std::shared_ptr<CommunicatorIdentity> owner, std::string kind, std::string number,
                           std::string what)
    : owner_(std::move(owner)),
      kind_(std::move(kind)),
      number_(std::move(number)),
      what_(std::move(what)),
      state_(std::make_unique<State>()),
      exceptions_at_start_(std::uncaught_exceptions()) {}

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

bool MpiOperation::complete() const { return state_->done == state_->requests.size(); }

MPI_Request* MpiOperation::add_request() {
  state_->requests.push_back(MPI_REQUEST_NULL);
  state_->expected_bytes.resize(state_->requests.size(), -1);
  return &state_->requests.back();
}

void MpiOperation::expect_bytes(std::int64_t bytes) {
  state_->expected_bytes.resize(state_->requests.size(), -1);
  state_->expected_bytes.push_back(bytes);
}

void MpiOperation::keep(const Tensor& tensor) { state_->tensors.push_back(tensor); }

std::byte* MpiOperation::allocate(std::size_t bytes) {
  state_->storage = std::make_unique<std::byte[]>(bytes);
  return state_->storage.get();
}

std::string MpiOperation::label() const {
  return fmt::format("{} '{}' ({} on communicator '{}' of {} ranks)", kind_, what_, number_, owner_->name,
                     owner_->size);
}

bool MpiOperation::test() {
  State& state = *state_;
  while (!complete()) {
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
  state.tensors.clear();
  return true;
}

// True once complete, false when `seconds` have gone by.
bool MpiOperation::poll(double seconds) {
  using Clock = std::chrono::steady_clock;
  auto last = Clock::now();
  double waited = 0;
  for (int round = 0; !test(); ++round) {
    if (waited > seconds) return false;
    if (waited > kYieldSeconds) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    } else if (round > kSpins) {
      sched_yield();  // ranks may outnumber cores: the one that is awaited may need this one
    }
    // A long gap means that this process was stopped (a suspended job): the other ranks then were too.
    const auto now = Clock::now();
    waited += std::min(1.0, std::chrono::duration<double>(now - last).count());
    last = now;
  }
  return true;
}

void MpiOperation::wait() {
  if (poll(owner_->timeout)) return;
  late_ = true;
  fail(
      "{} is late: world rank {} (rank {} of the communicator, on {}) waited {:g} s for it. Another rank has stopped, "
      "hangs or is far behind: look for its last words; if it is only slow, raise parallel.timeout",
      label(), owner_->world_rank, owner_->rank, owner_->host, owner_->timeout);
}

}  // namespace convoy
