// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog/watchdog.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <type_traits>
#include <utility>

#include "layers/base/error.h"
#include "parallel/base/mpi_check.h"
#include "parallel/watchdog/own_status.h"

namespace convoy {

namespace {

constexpr int kQueryTag = 1;
constexpr int kAnswerTag = 2;
constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kServeEvery = 5 * kMillisecond;
constexpr std::int64_t kMinAskTime = 500 * kMillisecond;  // others time out meanwhile: the lowest reports
constexpr std::int64_t kAskAgain = 600 * kMillisecond;    // after this all ranks of a silent node are asked
constexpr std::int64_t kMaxAskTime = 2000 * kMillisecond;
constexpr std::int64_t kYield = 5000 * kMillisecond;     // for the report of another rank to end the job
constexpr std::int64_t kForget = 10'000 * kMillisecond;  // another rank's lateness, if the job did not end

std::atomic<Watchdog*> current_watchdog{nullptr};

void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

}  // namespace

struct Watchdog::Query {
  std::uint64_t communicator = 0;
  std::int64_t speaks = 0;  ///< 1: no question: the sender reports now, others need not
};

struct Watchdog::AnswerRow {
  std::int64_t world_rank = 0;
  std::int64_t age_ns = 0;
  std::int64_t count = -1;
  std::uint64_t communicator = 0;  ///< that the count is of
  ProcessState state = ProcessState::kUnknown;
  Lateness lateness = Lateness::kNone;
  StatusNote note;
};

// Kept until it has been sent: for ever, if a stopped rank never takes it.
struct Watchdog::Outgoing {
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<std::byte> bytes;
};

Watchdog::Watchdog(MPI_Comm node, const std::string& host) : board_(node, host) {
  static_assert(std::is_trivially_copyable_v<Query> && std::is_trivially_copyable_v<AnswerRow>);
  CONVOY_MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
  attach_status(&board_.own_row());
  current_watchdog = this;
}

Watchdog::~Watchdog() {
  current_watchdog = nullptr;
  attach_status(nullptr);
  for (auto& outgoing : outgoing_) {
    int sent = 0;
    int ended = 0;
    MPI_Finalized(&ended);
    if (ended == 0) MPI_Test(&outgoing->request, &sent, MPI_STATUS_IGNORE);
    if (sent == 0) static_cast<void>(outgoing.release());  // MPI may still read it
  }
}

// The barrier is there so that what ranks have asked before it is answered, and no message is left.
void Watchdog::end() {
  MPI_Request barrier = MPI_REQUEST_NULL;
  CONVOY_MPI_CHECK(MPI_Ibarrier(comm_, &barrier));
  for (int done = 0; done == 0;) {
    CONVOY_MPI_CHECK(MPI_Test(&barrier, &done, MPI_STATUS_IGNORE));
    serve();
    if (done == 0) rest();
  }
  attach_status(nullptr);
  CONVOY_MPI_CHECK(MPI_Comm_free(&comm_));
  board_.free();
}

Watchdog* Watchdog::current() noexcept { return current_watchdog; }

void Watchdog::send(int world_rank, int tag, const void* data, std::size_t bytes) {
  auto outgoing = std::make_unique<Outgoing>();
  outgoing->bytes.resize(bytes);
  std::memcpy(outgoing->bytes.data(), data, bytes);
  outgoing_.push_back(std::move(outgoing));
  CONVOY_MPI_CHECK(MPI_Isend(outgoing_.back()->bytes.data(), static_cast<int>(bytes), MPI_BYTE, world_rank, tag, comm_,
                             &outgoing_.back()->request));
}

// The first rank of each other node, or every rank of those that have not answered.
void Watchdog::ask_nodes(const Query& query, bool all_ranks) {
  const std::vector<RankFacts>& facts = board_.facts();
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const bool first = facts[rank].node == static_cast<std::int64_t>(rank);
    if (!known_[rank].heard && (first || all_ranks)) send(static_cast<int>(rank), kQueryTag, &query, sizeof query);
  }
}

void Watchdog::tell(const Query& query) {
  for (std::size_t rank = 0; rank < board_.facts().size(); ++rank) {
    if (board_.facts()[rank].node != board_.locals().front()) {
      send(static_cast<int>(rank), kQueryTag, &query, sizeof query);
    }
  }
}

Watchdog::AnswerRow Watchdog::describe(std::size_t local, std::uint64_t communicator) const {
  const StatusRow& row = board_.row(local);
  AnswerRow answer;
  answer.world_rank = board_.locals()[local];
  answer.note = row.read();
  answer.age_ns = monotonic_ns() - answer.note.time_ns;
  answer.count = row.count(communicator);
  answer.communicator = communicator;
  answer.lateness = row.lateness();
  answer.state = process_state(board_.facts()[static_cast<std::size_t>(answer.world_rank)].process);
  return answer;
}

void Watchdog::learn(const AnswerRow& row) {
  const auto index = static_cast<std::size_t>(row.world_rank);
  if (row.world_rank != board_.world_rank() && row.lateness != Lateness::kNone) {
    note_late(static_cast<int>(row.world_rank), row.lateness == Lateness::kSpeaks);
  }
  if (index >= known_.size() || row.communicator != asked_) return;  // of an inquiry that is over
  RankStatus& status = known_[index];
  status.heard = true;
  status.state = row.state;
  status.note = row.note;
  status.age = static_cast<double>(row.age_ns) * 1e-9;
  status.count = row.count;
}

void Watchdog::note_late(int world_rank, bool speaks) {
  lowest_late_ = std::min(lowest_late_, world_rank);
  spoken_ = spoken_ || speaks;
  others_ns_ = monotonic_ns();
}

void Watchdog::answer(const Query& query, int asker) {
  std::vector<AnswerRow> rows;
  for (std::size_t local = 0; local < board_.locals().size(); ++local) {
    rows.push_back(describe(local, query.communicator));
  }
  send(asker, kAnswerTag, rows.data(), rows.size() * sizeof(AnswerRow));
}

// Takes the messages that have arrived: questions, from ranks that timed out, and answers.
void Watchdog::exchange() {
  for (;;) {
    int come = 0;
    MPI_Status status;
    CONVOY_MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &come, &status));
    if (come == 0) break;
    int bytes = 0;
    CONVOY_MPI_CHECK(MPI_Get_count(&status, MPI_BYTE, &bytes));
    std::vector<std::byte> data(static_cast<std::size_t>(bytes));
    CONVOY_MPI_CHECK(
        MPI_Recv(data.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_, MPI_STATUS_IGNORE));
    if (status.MPI_TAG == kAnswerTag) {
      for (std::size_t at = 0; at + sizeof(AnswerRow) <= data.size(); at += sizeof(AnswerRow)) {
        AnswerRow row;
        std::memcpy(&row, data.data() + at, sizeof row);
        learn(row);
      }
    } else if (data.size() == sizeof(Query)) {
      Query query;
      std::memcpy(&query, data.data(), sizeof query);
      note_late(status.MPI_SOURCE, query.speaks != 0);
      if (query.speaks == 0) answer(query, status.MPI_SOURCE);
    }
  }
  std::erase_if(outgoing_, [](const std::unique_ptr<Outgoing>& outgoing) {
    int sent = 0;
    CONVOY_MPI_CHECK(MPI_Test(&outgoing->request, &sent, MPI_STATUS_IGNORE));
    return sent != 0;
  });
}

void Watchdog::serve() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // another thread does
  const std::int64_t now = monotonic_ns();
  if (now - served_ns_ < kServeEvery) return;
  served_ns_ = now;
  exchange();
}

void Watchdog::read_own_node(std::uint64_t communicator) {
  for (std::size_t local = 0; local < board_.locals().size(); ++local) learn(describe(local, communicator));
}

// Asks until all nodes have answered, or long enough.
void Watchdog::inquire(std::uint64_t communicator) {
  known_.clear();
  for (const RankFacts& facts : board_.facts()) {
    RankStatus& status = known_.emplace_back();
    status.world_rank = static_cast<int>(known_.size()) - 1;
    status.host = facts.host.data();
    status.pid = facts.process.pid;
  }
  asked_ = communicator;
  if (monotonic_ns() - others_ns_ > kForget) {
    lowest_late_ = kNobody;
    spoken_ = false;
  }
  read_own_node(communicator);
  ask_nodes({communicator, 0}, false);
  const std::int64_t start = monotonic_ns();
  bool asked_all = false;
  for (std::int64_t waited = 0; waited < kMaxAskTime; waited = monotonic_ns() - start) {
    exchange();
    const bool all_heard = std::all_of(known_.begin(), known_.end(), [](const RankStatus& rank) { return rank.heard; });
    if (all_heard && waited >= kMinAskTime) break;
    if (!all_heard && !asked_all && waited > kAskAgain) {
      asked_all = true;
      ask_nodes({communicator, 0}, true);
    }
    rest();
  }
  read_own_node(communicator);
}

std::string Watchdog::report(const LateOperation& operation) {
  const std::lock_guard lock(mutex_);
  board_.own_row().set_lateness(Lateness::kLate);
  inquire(operation.communicator);
  if (spoken_ || lowest_late_ < board_.world_rank()) {
    for (const std::int64_t start = monotonic_ns(); monotonic_ns() - start < kYield; rest()) exchange();
  }
  board_.own_row().set_lateness(Lateness::kSpeaks);
  tell({operation.communicator, 1});
  const std::vector<RankStatus> ranks = std::move(known_);
  known_.clear();
  return hang_report(operation, ranks, board_.world_rank());
}

void fail_late(const LateOperation& operation) {
  Watchdog* watch = Watchdog::current();
  if (watch == nullptr) {
    fail("{} timed out: waited {:g} s for it; if the others are only slow, raise parallel.timeout", operation.label,
         operation.waited);
  }
  throw Error(watch->report(operation));
}

}  // namespace convoy
