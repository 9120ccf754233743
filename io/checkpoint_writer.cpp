// SPDX-License-Identifier: Apache-2.0
//
// Relies on std::thread; the thread touches error_ and result_ only, and the caller reads them after the join.
// Invariant: the destructor joins and never throws.
#include "io/checkpoint_writer.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "io/checkpoint_folder.h"
#include "layers/base/error.h"

namespace convoy {

CheckpointWriter::CheckpointWriter(std::string dir, int keep, bool async)
    : dir_(std::move(dir)), keep_(keep), async_(async) {
  std::error_code error;
  std::filesystem::create_directories(dir_, error);
  if (error) fail_usage("cannot create the checkpoint folder {}: {}", dir_, error.message());
  remove_stale_temporaries(dir_);
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::run(const Checkpoint& checkpoint) noexcept {
  try {
    const auto start = std::chrono::steady_clock::now();
    const std::string path = checkpoint_path(dir_, checkpoint.step);
    write_checkpoint(path, checkpoint);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    result_ = {checkpoint.step, path, seconds.count()};
    rotate_checkpoints(dir_, keep_, checkpoint.step);
  } catch (const std::exception& error) {
    error_ = std::make_exception_ptr(Error(fmt::format("checkpoint of step {}: {}", checkpoint.step, error.what())));
  } catch (...) {
    error_ = std::current_exception();
  }
  done_.store(true, std::memory_order_release);
}

void CheckpointWriter::write(Checkpoint checkpoint) {
  wait();
  done_ = false;
  result_ = {};
  if (async_) {
    thread_ = std::thread([this, state = std::move(checkpoint)] { run(state); });
  } else {
    run(checkpoint);
    join_and_rethrow();
  }
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
