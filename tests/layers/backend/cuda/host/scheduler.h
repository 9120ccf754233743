// SPDX-License-Identifier: Apache-2.0
//
// The imitated device's work: pieces of work that wait for others, in lanes, one for each stream. Nothing runs when it
// is added, unless its lane happens to be eager. Work runs when the host asks about the device, in an order that is
// random and as unkind as it may be: lanes have priorities for a while, so that some starve, and often only that is
// done which the host waits for. The order is the same in every run with the same seed, as far as the host's calls are;
// where ranks wait for each other their timing counts, too.
//
// All functions but the lock are called with the lock held.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace convoy::on_host {

enum class Progress { kDone, kNotYet };  ///< kNotYet: another rank must do its part first

/// Called until it is done. The state is empty at first and belongs to one run of the work, of which a graph has many.
using Work = std::function<Progress(std::shared_ptr<void>& state)>;

/// A piece of work; 0 was done long ago.
using WorkId = std::uint64_t;

class Scheduler {
 public:
  static Scheduler& instance();

  std::mutex mutex;

  /// A lane for a new stream.
  [[nodiscard]] int new_lane() { return ++lanes_; }
  /// after: what must be done before.
  WorkId add(int lane, const std::string& name, std::shared_ptr<const Work> work, const std::vector<WorkId>& after);
  [[nodiscard]] bool done(WorkId id) const { return !pending_.contains(id); }

  /// After add(): what eager lanes do at once.
  void run_eager();
  /// The host asks whether `target` is done: does some work, maybe none. Returns the answer.
  bool asked(WorkId target);
  /// Does all that can be done; false when some of it waits for other ranks.
  bool drain();
  /// For calls in which CUDA may wait for the whole device: sometimes does, letting others have the lock meanwhile.
  cudaError_t maybe_synchronize(std::unique_lock<std::mutex>& lock, const char* call);
  cudaError_t synchronize(std::unique_lock<std::mutex>& lock, const char* call, WorkId target);

  /// From now on a thread makes progress where the host has not called for a while, since it waits for other ranks.
  void work_in_background();

  /// The order is that of this seed from now on.
  void seed(std::uint64_t seed);
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  /// For messages about failures: "order of work: CONVOY_ORDER_SEED=1".
  [[nodiscard]] std::string seed_text() const;
  /// Below `count`.
  std::size_t random(std::size_t count) { return static_cast<std::size_t>(random_() % count); }
  [[nodiscard]] bool chance(double probability);

  /// Work went wrong: the next call that may tell it does.
  void fail(cudaError_t error, std::string words);
  [[nodiscard]] cudaError_t take_error();
  /// What cannot go on, for people.
  [[nodiscard]] std::string stuck_work() const;

 private:
  struct Piece {
    int lane;
    std::string name;
    std::shared_ptr<const Work> work;
    std::shared_ptr<void> state;
    std::size_t missing = 0;
    std::vector<WorkId> after, dependents;
  };
  struct Mood {
    double priority;
    bool eager;
  };
  using Ids = std::unordered_set<WorkId>;

  Scheduler();
  void tick();
  Mood& mood(int lane);
  // Runs up to `budget` pieces, of these only. Returns how many were done.
  std::size_t pass(std::size_t budget, const std::function<bool(WorkId)>& may_run);
  void complete(WorkId id);
  [[nodiscard]] Ids needed_for(WorkId target) const;
  void background();

  std::unordered_map<WorkId, Piece> pending_;
  std::vector<WorkId> ready_;
  WorkId last_ = 0;
  int lanes_ = 0;
  std::mt19937_64 random_;
  std::uint64_t seed_ = 0;
  std::unordered_map<int, Mood> moods_;
  std::size_t ticks_left_ = 0;  // until moods change
  double eagerness_ = 0;        // the share of lanes that are eager
  bool only_needed_ = false;    // a host that waits gets only what it waits for
  cudaError_t error_ = cudaSuccess;
  std::chrono::steady_clock::time_point last_call_;
  bool has_background_ = false;
};

/// Variable of the environment with the seed of the order.
inline constexpr const char* kSeedVariable = "CONVOY_ORDER_SEED";

}  // namespace convoy::on_host
