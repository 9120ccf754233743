// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog/status_board.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace convoy {

namespace {

template <std::size_t N>
void copy_text(std::array<char, N>& to, std::string_view from) noexcept {
  const std::size_t length = std::min(from.size(), N - 1);
  std::memcpy(to.data(), from.data(), length);
  to[length] = '\0';
}

// Of an array that should end with a zero: it may have come in a message.
template <std::size_t N>
std::string_view text(const std::array<char, N>& from) noexcept {
  const auto end = std::find(from.begin(), from.end(), '\0');
  return {from.data(), static_cast<std::size_t>(end - from.begin())};
}

}  // namespace

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

void StatusNote::set(std::string_view its_kind, std::string_view its_what, std::string_view its_communicator) noexcept {
  copy_text(kind, its_kind);
  copy_text(what, its_what);
  copy_text(communicator, its_communicator);
}

std::string StatusNote::to_string() const {
  if (text(kind).empty()) return std::string(text(what));
  return fmt::format("{} '{}' ({} {} on '{}')", text(kind), text(what), message != 0 ? "message" : "collective", number,
                     text(communicator));
}

// Half v % 2 holds note v while version_ is v. It is written again only for note v + 2, that is after version_ became
// v + 1: a reader that saw any word of note v + 2 also sees, by the two fences, that version_ has moved on.
void StatusRow::write(const StatusNote& note) noexcept {
  const std::uint64_t next = version_.load(std::memory_order_relaxed) + 1;
  const auto words = std::bit_cast<std::array<std::uint64_t, kWords>>(note);
  auto& half = halves_[next % 2];
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < kWords; ++i) half[i].store(words[i], std::memory_order_relaxed);
  version_.store(next, std::memory_order_release);
}

// A writer that overtakes every attempt is at least not stopped; what is read last may then be mixed, so it is left
// out.
StatusNote StatusRow::read() const noexcept {
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    const auto& half = halves_[version % 2];
    std::array<std::uint64_t, kWords> words;
    for (std::size_t i = 0; i < kWords; ++i) words[i] = half[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version_.load(std::memory_order_relaxed) == version) return std::bit_cast<StatusNote>(words);
  }
  return {};
}

int StatusRow::open(std::uint64_t id) noexcept {
  for (int place = 0; place < kCommunicators; ++place) {
    Count& count = counts_[static_cast<std::size_t>(place)];
    std::uint64_t free = 0;
    if (count.id.load() != 0) continue;
    count.collectives.store(0);
    if (count.id.compare_exchange_strong(free, id)) return place;
  }
  return -1;
}

void StatusRow::close(int place) noexcept { counts_[static_cast<std::size_t>(place)].id.store(0); }

std::int64_t StatusRow::count(std::uint64_t id) const noexcept {
  for (const Count& count : counts_) {
    if (count.id.load() == id) return static_cast<std::int64_t>(count.collectives.load(std::memory_order_acquire));
  }
  return -1;
}

}  // namespace convoy
