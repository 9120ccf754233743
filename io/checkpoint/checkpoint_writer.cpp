// SPDX-License-Identifier: Apache-2.0
//
// Relies on std::thread; the thread touches error_ and result_ only, and the caller reads them after the join.
// Invariant: the destructor joins and never throws.
#include "io/checkpoint/checkpoint_writer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "io/checkpoint/checkpoint_folder.h"
#include "layers/base/clock.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

using Clock = std::chrono::steady_clock;

// The calling thread gets a tenth of a core that computes: an interrupted compute thread holds up all others at their
// next barrier. Less, and the write would not be done by the next checkpoint.
void yield_to_training() { static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10)); }

}  // namespace

CheckpointWriter::CheckpointWriter(std::string dir, int keep, bool async)
    : dir_(std::move(dir)), keep_(keep), async_(async) {
  std::error_code error;
  std::filesystem::create_directories(dir_, error);
  if (error) fail_system(error.value(), "cannot create the checkpoint folder {}: {}", dir_, error.message());
  remove_stale_temporaries(dir_);
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::run(double stall_seconds) noexcept {
  const std::int64_t step = state_.step;
  try {
    const auto start = Clock::now();
    const std::string path = checkpoint_path(dir_, step);
    write_checkpoint(path, state_, &memory_);
    const double seconds = seconds_since(start);
    result_ = {step, path, seconds, async_ ? stall_seconds : stall_seconds + seconds};
    rotate_checkpoints(dir_, keep_, step);
  } catch (const std::exception& error) {
    error_ = std::make_exception_ptr(Error(fmt::format("checkpoint of step {}: {}", step, error.what())));
  } catch (...) {
    error_ = std::current_exception();
  }
  done_.store(true, std::memory_order_release);
}

void CheckpointWriter::write(Checkpoint checkpoint, double copied_in) {
  const auto start = Clock::now();
  wait();
  const double stall = copied_in + seconds_since(start);
  done_ = false;
  result_ = {};
  state_ = std::move(checkpoint);
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
