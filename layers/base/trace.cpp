// SPDX-License-Identifier: Apache-2.0
//
// One recorder behind a mutex. Whether it is on is an atomic flag beside it, so that a span that is not recorded takes
// no lock; the flag is looked at again under the lock, so that nothing is recorded once stop() has returned. Invariant:
// an event for which there is no space or no memory is counted; nothing is thrown.
#include "layers/base/trace.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

namespace convoy::trace {

namespace {

constinit std::atomic<bool> is_enabled{false};
constinit std::atomic<std::int64_t> current_step{0};
constinit std::atomic<std::uint64_t> dropped_events{0};

struct Recorder {
  std::mutex mutex;  // guards the two members below
  std::vector<Event> events;
  std::size_t capacity = 0;
};

// Lives as long as the process: a thread may still record while main returns.
Recorder& recorder() {
  static auto* const instance = new Recorder;
  return *instance;
}

}  // namespace

std::string_view track_name(Track track) {
  switch (track) {
    case Track::kCompute: return "compute";
    case Track::kSend: return "send";
    case Track::kReceive: return "receive";
    case Track::kWait: return "wait";
    case Track::kReduce: return "reduce";
    case Track::kData: return "data";
    case Track::kCheckpoint: return "checkpoint";
  }
  return "unknown";
}

void start(std::size_t capacity) {
  Recorder& to = recorder();
  const std::scoped_lock lock(to.mutex);
  to.events = {};  // gives the memory back, too
  to.capacity = capacity;
  dropped_events = 0;
  is_enabled.store(true, std::memory_order_relaxed);
}

void stop() {
  Recorder& to = recorder();
  const std::scoped_lock lock(to.mutex);
  is_enabled.store(false, std::memory_order_relaxed);
}

bool enabled() noexcept { return is_enabled.load(std::memory_order_relaxed); }

void set_step(std::int64_t step) noexcept { current_step.store(step, std::memory_order_relaxed); }

double now() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void record(Track track, std::string name, double start, double end) noexcept {
  if (!enabled()) return;
  try {
    Recorder& to = recorder();
    const std::scoped_lock lock(to.mutex);
    if (!enabled()) return;
    if (to.events.size() >= to.capacity) {
      ++dropped_events;
      return;
    }
    // All at once, with the first event: later ones allocate nothing. The system gives pages as they are touched.
    if (to.events.empty()) to.events.reserve(std::min(to.capacity, kDefaultCapacity));
    to.events.push_back({std::move(name), track, current_step.load(std::memory_order_relaxed), start, end});
  } catch (...) {
    ++dropped_events;
  }
}

std::vector<Event> events() {
  Recorder& from = recorder();
  std::vector<Event> events;
  {
    const std::scoped_lock lock(from.mutex);
    events = from.events;
  }
  // record() may be told of an end that lies before others that are already here.
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.end < b.end; });
  return events;
}

std::uint64_t dropped() { return dropped_events; }

void Span::finish() noexcept { record(track_, std::move(name_), start_, now()); }

}  // namespace convoy::trace
