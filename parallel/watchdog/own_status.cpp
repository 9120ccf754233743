// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog/own_status.h"

#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "parallel/watchdog/activity.h"

namespace convoy {

namespace {

// Held for some tens of nanoseconds, and hardly ever by two threads.
class SpinLock {
 public:
  void lock() noexcept {
    while (held_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() noexcept { held_.clear(std::memory_order_release); }

 private:
  std::atomic_flag held_ = ATOMIC_FLAG_INIT;
};

SpinLock row_lock;
StatusRow* own_row = nullptr;  // under row_lock

// FNV-1a, of the name, the members and how many of that name and those members came before.
std::uint64_t make_id(const std::string& name, const std::vector<int>& members) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::vector<int>>, std::uint64_t> made;
  std::uint64_t id = 14695981039346656037ULL;
  const auto mix = [&](std::uint64_t value) { id = (id ^ value) * 1099511628211ULL; };
  for (const char letter : name) mix(static_cast<unsigned char>(letter));
  for (const int member : members) mix(static_cast<std::uint64_t>(member) + 256);
  const std::lock_guard lock(mutex);
  mix(++made[{name, members}]);
  return id != 0 ? id : 1;
}

}  // namespace

std::string OperationName::number_text() const {
  if (number == 0) return "first contact";
  return message ? fmt::format("message {}, tag {}", number, tag) : fmt::format("collective {}", number);
}

WatchedCommunicator::WatchedCommunicator(std::string name, std::vector<int> members)
    : name_(std::move(name)), members_(std::move(members)), id_(make_id(name_, members_)) {
  const std::lock_guard lock(row_lock);
  if (own_row != nullptr && members_.size() > 1) place_ = own_row->open(id_);
}

WatchedCommunicator::~WatchedCommunicator() {
  const std::lock_guard lock(row_lock);
  if (own_row != nullptr && place_ >= 0) own_row->close(place_);
}

void WatchedCommunicator::note(RankState state, const OperationName& operation) const noexcept {
  if (members_.size() < 2) return;
  StatusNote note;
  note.time_ns = monotonic_ns();
  note.number = operation.number;
  note.state = state;
  note.message = operation.message ? 1 : 0;
  note.set(operation.kind, operation.what, name_);
  const std::lock_guard lock(row_lock);
  if (own_row == nullptr) return;
  if (state == RankState::kStarted) {
    if (place_ >= 0 && !operation.message && operation.number > 0) own_row->set_count(place_, operation.number);
    if (own_row->lateness() != Lateness::kNone) own_row->set_lateness(Lateness::kNone);  // it went on after all
  }
  own_row->write(note);
}

LateOperation WatchedCommunicator::late(const OperationName& operation, std::string label, double waited) const {
  LateOperation late{std::move(label), id_, members_, 0, -1, waited};
  if (!operation.message) late.collective = operation.number;
  if (operation.message && operation.peer >= 0) late.peer = members_[static_cast<std::size_t>(operation.peer)];
  return late;
}

void attach_status(StatusRow* row) noexcept {
  const std::lock_guard lock(row_lock);
  own_row = row;
}

void note_activity(std::string_view what) noexcept {
  StatusNote note;
  note.time_ns = monotonic_ns();
  note.state = RankState::kWorking;
  note.set("", what, "");
  const std::lock_guard lock(row_lock);
  if (own_row != nullptr) own_row->write(note);
}

}  // namespace convoy
