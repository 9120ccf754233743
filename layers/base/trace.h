// SPDX-License-Identifier: Apache-2.0
//
// Recording of what this process does when, for a trace of all ranks. One recorder per process, off unless start()
// was called; a span costs one branch when off. Safe from several threads. Invariant: memory is bounded: past
// `capacity` events, new ones are counted and dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convoy::trace {

/// What a row of the picture shows; also the trace's categories.
enum class Track : std::uint8_t { kCompute, kSend, kReceive, kWait, kReduce, kData, kCheckpoint };
[[nodiscard]] std::string_view track_name(Track track);

struct Event {
  std::string name;  ///< "F3", "gradient bucket 2"
  Track track = Track::kCompute;
  std::int64_t step = 0;  ///< that set_step() said last
  double start = 0;       ///< seconds of this process's monotonic clock
  double end = 0;
};

inline constexpr std::size_t kDefaultCapacity = 200'000;

/// Starts recording; forgets what was recorded.
void start(std::size_t capacity = kDefaultCapacity);
void stop();
[[nodiscard]] bool enabled() noexcept;
void set_step(std::int64_t step) noexcept;
/// Seconds of the monotonic clock that events are in.
[[nodiscard]] double now() noexcept;
/// Records an event whose times are known, or counts it as dropped. Nothing when off.
void record(Track track, std::string name, double start, double end) noexcept;
/// What was recorded, in the order of ends; and how many were dropped.
[[nodiscard]] std::vector<Event> events();
[[nodiscard]] std::uint64_t dropped();

/// Records from its construction to its destruction. `name` is copied only when recording.
class Span {
 public:
  Span(Track track, std::string_view name) : track_(track) {
    if (enabled()) {
      name_ = name;
      start_ = now();
    }
  }
  ~Span() {
    if (start_ >= 0) finish();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void finish() noexcept;
  Track track_;
  std::string name_;
  double start_ = -1;
};

}  // namespace convoy::trace
