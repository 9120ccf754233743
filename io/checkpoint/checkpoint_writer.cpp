// SPDX-License-Identifier: Apache-2.0
//
// Relies on std::thread: while the thread runs it alone touches state_, memory_, error_ and result_; what both sides
// touch is guarded by mutex_.
// Invariant: the destructor joins and never throws.
#include "io/checkpoint/checkpoint_writer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/checkpoint/checkpoint_folder.h"
#include "io/files/create_folders.h"
#include "layers/base/clock.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

using Clock = std::chrono::steady_clock;

// The calling thread gets a tenth of a core that computes: an interrupted compute thread holds up all others at their
// next barrier. Less, and the write would not be done by the next checkpoint.
void yield_to_training() { static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10)); }

// The exception that is being handled, as an Error that names the step.
std::exception_ptr error_of_step(std::int64_t step) {
  try {
    try {
      throw;
    } catch (const Error& error) {
      fail_running_as(error, fmt::format("checkpoint of step {}: {}", step, error.what()));
    } catch (const std::exception& error) {
      fail("checkpoint of step {}: {}", step, error.what());
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string dir, int keep, bool async, std::optional<StepScores> scores)
    : dir_(std::move(dir)), keep_(keep), async_(async), scores_(std::move(scores)) {
  if (const std::error_code error = create_folders(dir_))
    fail_system(error.value(), "cannot create the checkpoint folder {}: {}", dir_, error.message());
  remove_stale_temporaries(dir_);
  warn(link_best_checkpoint(dir_, scores_.value_or(StepScores())), link_failed_, "");
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::run(double stall_seconds) noexcept {
  const std::int64_t step = state_.step;
  try {
    const auto start = Clock::now();
    if (before_write_) before_write_();
    const std::string path = checkpoint_path(dir_, step);
    write_checkpoint(path, state_, &memory_);
    const double seconds = seconds_since(start);
    result_ = {step, path, seconds, async_ ? stall_seconds : stall_seconds + seconds};
    const std::scoped_lock lock(mutex_);
    newest_ = step;
    in_flight_ = -1;
    rotate();
  } catch (...) {
    error_ = error_of_step(step);
  }
  state_.spool.reset();  // its disk space
  {
    const std::scoped_lock lock(mutex_);
    in_flight_ = -1;
  }
  done_.store(true, std::memory_order_release);
}

// The caller holds mutex_. The link first, so that it never points to what has gone. Nothing is removed before this
// writer has completed a checkpoint.
void CheckpointWriter::rotate() {
  if (scores_) warn(link_best_checkpoint(dir_, *scores_), link_failed_, "");
  if (newest_ < 0) return;
  const auto problems = rotate_checkpoints(dir_, keep_, newest_, scores_.value_or(StepScores()));
  const std::string more = problems.size() > 1 ? fmt::format(" (and {} more)", problems.size() - 1) : "";
  warn(problems.empty() ? "" : fmt::format("old checkpoints stay: {}{}", problems.front(), more), rotation_failed_,
       "; tried again after each checkpoint");
}

// Once, until there is no problem in between.
void CheckpointWriter::warn(const std::string& problem, bool& told, const char* then) {
  if (!problem.empty() && !told) warnings_.push_back(problem + then);
  told = !problem.empty();
}

// Training does not wait for the thread that rotates: there is a next time.
std::vector<std::string> CheckpointWriter::take_warnings() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock ? std::exchange(warnings_, {}) : std::vector<std::string>();
}

bool CheckpointWriter::evaluated(std::int64_t step, double score) {
  const std::scoped_lock lock(mutex_);
  if (!scores_) return false;
  scores_->erase(step);
  if (!std::isfinite(score)) return false;
  std::vector<CheckpointFile> others;
  try {
    others = list_checkpoints(dir_);
  } catch (const Error&) {  // the rotation tells it
  }
  if (in_flight_ >= 0) others.push_back({in_flight_, ""});
  const auto other = best_checkpoint(others, *scores_);
  const bool best = !other || score > scores_->at(other->step);
  scores_->emplace(step, score);
  if (in_flight_ < 0) rotate();  // else the thread does it
  return best;
}

StepScores CheckpointWriter::scores() {
  const std::scoped_lock lock(mutex_);
  return scores_.value_or(StepScores());
}

void CheckpointWriter::write(Checkpoint checkpoint, double copied_in) {
  const auto start = Clock::now();
  wait();
  const double stall = copied_in + seconds_since(start);
  done_ = false;
  result_ = {};
  state_ = std::move(checkpoint);
  {
    const std::scoped_lock lock(mutex_);
    in_flight_ = state_.step;
  }
  if (async_) {
    thread_ = std::thread([this, stall] {
      yield_to_training();
      run(stall);
    });
  } else {
    run(stall);
    join_and_rethrow();
  }
}

Checkpoint CheckpointWriter::recycle() {
  if (thread_.joinable() && !done_.load(std::memory_order_acquire)) return {};
  return std::exchange(state_, {});
}

void CheckpointWriter::join_and_rethrow() {
  if (thread_.joinable()) thread_.join();
  if (!result_.path.empty()) finished_.push_back(std::exchange(result_, {}));
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

std::vector<CheckpointWriter::Result> CheckpointWriter::poll() {
  if (!thread_.joinable() || done_.load(std::memory_order_acquire)) join_and_rethrow();
  return std::exchange(finished_, {});
}

void CheckpointWriter::wait() { join_and_rethrow(); }

}  // namespace convoy
