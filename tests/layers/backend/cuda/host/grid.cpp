// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/backend/cuda/host/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/layers/backend/cuda/host/device_memory.h"
#include "tests/layers/backend/cuda/host/fiber.h"
#include "tests/layers/backend/cuda/host/streams.h"

uint3 threadIdx{}, blockIdx{};
dim3 blockDim, gridDim;

namespace convoy::on_host {

namespace {

constexpr unsigned kMaxThreads = 1024;  // of a block, on every GPU

std::minstd_rand order;  // the same in every run
std::string last_failure;

unsigned random_below(std::size_t count) { return static_cast<unsigned>(order() % count); }

std::string where(const std::source_location& place) {
  const std::string_view path = place.file_name();
  return fmt::format("{}:{}", path.substr(path.find_last_of('/') + 1), place.line());
}

struct Thread {
  Fiber* fiber = nullptr;  // null: has not begun
  bool waits = false, ended = false;
  unsigned exchanges = 0;
  std::source_location place;  // of the barrier that it is at
};

struct Warp {
  unsigned arrived = 0, wanted = 0;  // lanes at the barrier
  unsigned rank = 0;                 // its place among the warps, by which they are chosen
  std::vector<unsigned> ready;       // threads that can go on
  // Two sets: a lane brings its next value while others still read the one before.
  std::array<std::array<std::array<std::byte, 8>, kWarp>, 2> values{};
};

/// The block that runs. Its fibers are kept for the next one.
class Block {
 public:
  std::uint64_t number = 0;

  /// False: it failed, see failure().
  bool run(const std::function<void()>& thread, unsigned count) {
    body_ = &thread;
    ++number;
    threads_.assign(count, Thread{});
    warps_.assign((count + kWarp - 1) / kWarp, Warp{});
    warp_of_rank_.resize(warps_.size());
    std::iota(warp_of_rank_.begin(), warp_of_rank_.end(), 0U);
    std::shuffle(warp_of_rank_.begin(), warp_of_rank_.end(), order);
    for (unsigned rank = 0; rank < warps_.size(); ++rank) warps_[warp_of_rank_[rank]].rank = rank;
    ahead_ = random_below(2) == 0;
    ready_ranks_ = 0;
    for (unsigned each = 0; each < count; ++each) make_ready(each);
    arrived_.clear();
    left_ = count;
    failed_ = false;
    begin_or_resume(host_, take_ready());
    if (failed_) restart_fibers();
    return !failed_;
  }

  void block_barrier(const std::source_location& place) {
    arrived_.push_back(current_);
    threads_[current_].place = place;
    if (place.line() != threads_[arrived_.front()].place.line()) {
      set_failure(fmt::format("a thread of a block waits at {} while another waits at {}", where(place),
                              where(threads_[arrived_.front()].place)));
      give_up();
    }
    release_block();
    wait();
  }

  void warp_barrier(unsigned mask, const std::source_location& place) {
    Warp& warp = warps_[current_ / kWarp];
    const unsigned own = 1U << lane();
    threads_[current_].place = place;
    if ((mask & own) == 0) {
      set_failure(fmt::format("a thread is not in the mask that it brings to {}", where(place)));
      give_up();
    }
    if (warp.arrived != 0 && warp.wanted != mask) {
      set_failure(fmt::format("threads of a warp bring different masks to {}", where(place)));
      give_up();
    }
    warp.wanted = mask;
    warp.arrived |= own;
    if (warp.arrived == warp.wanted) {
      warp.arrived = 0;
      for (unsigned lane = 0; lane < kWarp; ++lane) {
        if ((mask >> lane & 1U) != 0) make_ready(current_ / kWarp * kWarp + lane);
      }
    }
    wait();
  }

  void exchange(unsigned mask, void* value, std::size_t bytes, unsigned from, const std::source_location& place) {
    auto& values = warps_[current_ / kWarp].values[threads_[current_].exchanges++ % 2];
    std::memcpy(values[lane()].data(), value, bytes);
    warp_barrier(mask, place);
    std::memcpy(value, values[from].data(), bytes);
  }

  [[nodiscard]] unsigned lane() const { return current_ % kWarp; }

  /// What a fiber does: threads that have not begun, one after the other.
  void run_threads() {
    for (;;) {
      (*body_)();
      Fiber& own = *threads_[current_].fiber;
      threads_[current_].ended = true;
      --left_;
      release_block();
      if (left_ == 0) {
        idle_.push_back(&own);
        own.resume(host_);
        continue;
      }
      if (ready_ranks_ == 0) give_up_stuck();
      const unsigned next = take_ready();
      if (threads_[next].fiber == nullptr) {
        become(next);
        threads_[next].fiber = &own;
      } else {
        idle_.push_back(&own);
        begin_or_resume(own, next);
      }
    }
  }

 private:
  void make_ready(unsigned thread) {
    Warp& warp = warps_[thread / kWarp];
    warp.ready.push_back(thread);
    ready_ranks_ |= 1U << warp.rank;
  }

  // Any thread of any warp, or in other blocks of the first warp that can go on, which so gets far ahead of the others.
  unsigned take_ready() {
    unsigned ranks = ready_ranks_;
    if (!ahead_) {
      for (unsigned skipped = random_below(static_cast<unsigned>(std::popcount(ranks))); skipped > 0; --skipped) {
        ranks &= ranks - 1;
      }
    }
    const auto rank = static_cast<unsigned>(std::countr_zero(ranks));
    std::vector<unsigned>& ready = warps_[warp_of_rank_[rank]].ready;
    const unsigned at = random_below(ready.size()), thread = ready[at];
    ready[at] = ready.back();
    ready.pop_back();
    if (ready.empty()) ready_ranks_ &= ~(1U << rank);
    return thread;
  }

  void become(unsigned thread) {
    current_ = thread;
    threads_[thread].waits = false;
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
  }

  void begin_or_resume(Fiber& from, unsigned thread) {
    become(thread);
    Fiber*& fiber = threads_[thread].fiber;
    if (fiber == nullptr) {
      if (idle_.empty()) idle_.push_back(&fibers_.emplace_back([] { running().run_threads(); }));
      fiber = idle_.back();
      idle_.pop_back();
    }
    from.resume(*fiber);
  }

  // Lets others run until this thread is ready and its turn comes.
  void wait() {
    const unsigned own = current_;
    threads_[own].waits = true;
    if (ready_ranks_ == 0) give_up_stuck();
    const unsigned next = take_ready();
    if (next == own) {
      threads_[own].waits = false;
    } else {
      begin_or_resume(*threads_[own].fiber, next);
    }
  }

  void release_block() {
    if (arrived_.size() != left_) return;
    for (const unsigned thread : arrived_) make_ready(thread);
    arrived_.clear();
  }

  // Ends the block from within a thread, which does not go on: what it holds is lost, so it must hold no memory.
  void give_up() {
    failed_ = true;
    threads_[current_].fiber->resume(host_);
  }

  void give_up_stuck() {
    const auto waits = [](const Thread& thread) { return thread.waits; };
    set_failure(fmt::format("{} threads of a block wait for others that have ended or wait elsewhere, the first at {}",
                            std::count_if(threads_.begin(), threads_.end(), waits),
                            where(std::find_if(threads_.begin(), threads_.end(), waits)->place)));
    give_up();
  }

  void restart_fibers() {
    idle_.clear();
    for (Fiber& fiber : fibers_) {
      fiber.restart();
      idle_.push_back(&fiber);
    }
  }

  static Block& running();

  const std::function<void()>* body_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> warp_of_rank_;
  unsigned ready_ranks_ = 0;  // a bit for each warp with threads that can go on
  bool ahead_ = false;
  std::vector<unsigned> arrived_;  // threads at the block's barrier
  std::size_t left_ = 0;           // threads that have not ended
  unsigned current_ = 0;
  bool failed_ = false;
  Fiber host_;
  std::deque<Fiber> fibers_;
  std::vector<Fiber*> idle_;
};

Block& the_block() {
  static Block block;
  return block;
}

Block& Block::running() { return the_block(); }

void fail_launch(const std::string& why) { Scheduler::instance().fail(cudaErrorLaunchFailure, why); }

void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) {
  gridDim = grid;
  blockDim = block;
  std::vector<std::uint32_t> indices(std::size_t{grid.x} * grid.y * grid.z);
  std::iota(indices.begin(), indices.end(), 0U);
  std::shuffle(indices.begin(), indices.end(), order);
  for (const std::uint32_t index : indices) {
    blockIdx = {index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y};
    if (!the_block().run(thread, block.x * block.y * block.z)) return fail_launch(failure());
  }
  if (const std::string damage = damaged_guard(); !damage.empty()) fail_launch(damage);
}

}  // namespace

void set_order(std::uint64_t seed) { order.seed(static_cast<std::minstd_rand::result_type>(seed)); }

const char* failure() noexcept { return last_failure.c_str(); }
void set_failure(std::string message) { last_failure = std::move(message); }

void block_barrier(const std::source_location& place) { the_block().block_barrier(place); }
void warp_barrier(unsigned mask, const std::source_location& place) { the_block().warp_barrier(mask, place); }
void exchange(unsigned mask, void* value, std::size_t bytes, unsigned from, const std::source_location& place) {
  the_block().exchange(mask, value, bytes, from, place);
}
unsigned lane() { return the_block().lane(); }
std::uint64_t block_number() { return the_block().number; }

cudaError_t launch_grid(cudaStream_t stream, dim3 grid, dim3 block, std::function<void()> thread) {
  const unsigned threads = block.x * block.y * block.z;
  const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMaxThreads || blocks == 0 || grid.y > 65535 || grid.z > 65535) {
    set_failure(fmt::format("invalid configuration: {}x{}x{} blocks of {}x{}x{} threads", grid.x, grid.y, grid.z,
                            block.x, block.y, block.z));
    return cudaErrorInvalidConfiguration;
  }
  return enqueue(stream, "kernel", [grid, block, thread = std::move(thread)] { run_grid(grid, block, thread); });
}

}  // namespace convoy::on_host
