// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/backend/cuda/host/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/layers/backend/cuda/host/grid.h"

namespace convoy::on_host {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
constexpr auto kAbsent = std::chrono::milliseconds(2);  // a host that has not called for so long waits elsewhere
constexpr auto kLongest = std::chrono::seconds(40);     // that a call waits for the whole device

// Ended before the program's statics go.
struct Background {
  std::atomic<bool> ends = false;
  std::thread thread;
};
Background* background_thread = nullptr;

void end_background() {
  background_thread->ends = true;
  background_thread->thread.join();
}

}  // namespace

Scheduler& Scheduler::instance() {
  static auto* scheduler = new Scheduler;  // never destroyed: backends may be static
  return *scheduler;
}

Scheduler::Scheduler() {
  const char* text = std::getenv(kSeedVariable);
  seed(text != nullptr ? std::strtoull(text, nullptr, 10) : 1);
}

void Scheduler::seed(std::uint64_t seed) {
  seed_ = seed;
  random_.seed(seed);
  moods_.clear();
  ticks_left_ = 0;
}

bool Scheduler::chance(double probability) {
  return static_cast<double>(random_() >> 11) < probability * static_cast<double>(std::uint64_t{1} << 53);
}

void Scheduler::tick() {
  last_call_ = Clock::now();
  if (ticks_left_-- > 0) return;
  ticks_left_ = std::array<std::size_t, 4>{3, 30, 300, 1000}[random(4)];
  eagerness_ = std::array<double, 4>{0, 0, 0.5, 1}[random(4)];
  only_needed_ = chance(0.5);
  moods_.clear();
}

Scheduler::Mood& Scheduler::mood(int lane) {
  const auto found = moods_.find(lane);
  if (found != moods_.end()) return found->second;
  const double priority = std::uniform_real_distribution<double>()(random_);
  return moods_.emplace(lane, Mood{priority, chance(eagerness_)}).first->second;
}

WorkId Scheduler::add(int lane, const std::string& name, std::shared_ptr<const Work> work,
                      const std::vector<WorkId>& after) {
  const WorkId id = ++last_;
  Piece piece{lane, name, std::move(work), nullptr, 0, {}, {}};
  for (const WorkId before : after) {
    const auto found = pending_.find(before);
    if (found == pending_.end()) continue;
    found->second.dependents.push_back(id);
    piece.after.push_back(before);
    ++piece.missing;
  }
  if (piece.missing == 0) ready_.push_back(id);
  pending_.emplace(id, std::move(piece));
  return id;
}

void Scheduler::complete(WorkId id) {
  const auto found = pending_.find(id);
  const std::vector<WorkId> dependents = std::move(found->second.dependents);
  pending_.erase(found);
  for (const WorkId each : dependents) {
    if (--pending_.at(each).missing == 0) ready_.push_back(each);
  }
}

std::size_t Scheduler::pass(std::size_t budget, const std::function<bool(WorkId)>& may_run) {
  std::size_t done = 0;
  Ids waiting;  // for other ranks
  while (done < budget) {
    std::size_t best = ready_.size();
    double best_priority = -1;
    std::size_t ties = 0;
    for (std::size_t i = 0; i < ready_.size(); ++i) {
      const WorkId id = ready_[i];
      if (waiting.contains(id) || !may_run(id)) continue;
      const double priority = mood(pending_.at(id).lane).priority;
      if (priority < best_priority) continue;
      ties = priority > best_priority ? 1 : ties + 1;
      best_priority = priority;
      if (random(ties) == 0) best = i;
    }
    if (best == ready_.size()) break;
    const WorkId id = ready_[best];
    Piece& piece = pending_.at(id);
    if (*piece.work && (*piece.work)(piece.state) == Progress::kNotYet) {
      waiting.insert(id);
      continue;
    }
    ready_.erase(std::find(ready_.begin(), ready_.end(), id));
    complete(id);
    ++done;
  }
  return done;
}

void Scheduler::run_eager() {
  tick();
  pass(kUnlimited, [this](WorkId id) { return mood(pending_.at(id).lane).eager; });
}

Scheduler::Ids Scheduler::needed_for(WorkId target) const {
  Ids needed;
  std::vector<WorkId> left{target};
  while (!left.empty()) {
    const WorkId id = left.back();
    left.pop_back();
    const auto found = pending_.find(id);
    if (found == pending_.end() || !needed.insert(id).second) continue;
    left.insert(left.end(), found->second.after.begin(), found->second.after.end());
  }
  return needed;
}

bool Scheduler::asked(WorkId target) {
  tick();
  if (done(target)) return true;
  if (chance(0.3)) return false;  // and nothing happens
  const std::size_t budget = std::array<std::size_t, 4>{1, 8, 64, kUnlimited}[random(4)];
  std::size_t moved = 0;
  if (only_needed_) {
    const Ids needed = needed_for(target);
    moved = pass(budget, [&](WorkId id) { return needed.contains(id); });
  }
  // What the host does not wait for may be what another rank waits for.
  if (moved == 0) pass(budget, [](WorkId) { return true; });
  return done(target);
}

bool Scheduler::drain() {
  pass(kUnlimited, [](WorkId) { return true; });
  return pending_.empty();
}

cudaError_t Scheduler::synchronize(std::unique_lock<std::mutex>& lock, const char* call, WorkId target) {
  const auto start = Clock::now();
  while (target == 0 ? !drain() : !asked(target)) {
    if (Clock::now() - start > kLongest) {
      fail(cudaErrorLaunchTimeout, fmt::format("{} waits in vain for the device: {}", call, stuck_work()));
      return take_error();
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
  return take_error();
}

cudaError_t Scheduler::maybe_synchronize(std::unique_lock<std::mutex>& lock, const char* call) {
  tick();
  return !only_needed_ && chance(0.5) ? synchronize(lock, call, 0) : cudaSuccess;
}

void Scheduler::work_in_background() {
  if (std::exchange(has_background_, true)) return;
  background_thread = new Background;
  background_thread->thread = std::thread([this] { background(); });
  std::atexit(end_background);
}

void Scheduler::background() {
  while (!background_thread->ends) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
    if (!lock || ready_.empty() || Clock::now() - last_call_ < kAbsent) continue;
    pass(16, [](WorkId) { return true; });
  }
}

void Scheduler::fail(cudaError_t error, std::string words) {
  error_ = error;
  set_failure(fmt::format("{} ({})", words, seed_text()));
}

std::string Scheduler::seed_text() const { return fmt::format("order of work: {}={}", kSeedVariable, seed_); }

cudaError_t Scheduler::take_error() { return std::exchange(error_, cudaSuccess); }

std::string Scheduler::stuck_work() const {
  std::string words;
  for (const WorkId id : ready_) words += (words.empty() ? "" : ", ") + pending_.at(id).name;
  return fmt::format("{} pieces of work are left, and none of these ends: {}", pending_.size(), words);
}

}  // namespace convoy::on_host
