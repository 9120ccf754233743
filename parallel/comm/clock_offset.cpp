// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/clock_offset.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "layers/base/trace.h"
#include "parallel/comm/host_exchange.h"

namespace convoy {

namespace {

constexpr int kRounds = 16;
constexpr const char* kWhat = "clocks";

void send_time(Communicator& all, int peer, double time) {
  all.send_bytes(std::as_bytes(std::span<const double>(&time, 1)), peer, kWhat);
}

double receive_time(Communicator& all, int peer) {
  const std::vector<std::byte> bytes = all.receive_bytes(peer, kWhat);
  double time = 0;
  std::memcpy(&time, bytes.data(), sizeof time);
  return time;
}

// The parent asks, the child answers with its clock; the answer lies in the middle of the round trip.
double ask(Communicator& all, int peer) {
  double shortest = std::numeric_limits<double>::infinity();
  double offset = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double asked = trace::now();
    send_time(all, peer, asked);
    const double theirs = receive_time(all, peer);
    const double answered = trace::now();
    if (answered - asked >= shortest) continue;
    shortest = answered - asked;
    offset = (asked + answered) / 2 - theirs;
  }
  return offset;
}

void answer(Communicator& all, int parent) {
  for (int round = 0; round < kRounds; ++round) {
    static_cast<void>(receive_time(all, parent));
    send_time(all, parent, trace::now());
  }
}

}  // namespace

// Along a binomial tree: each rank compares its clock with those of its children, and adds the offset that its parent
// then tells it. Ranks on rank 0's host share its clock (offset 0).
double clock_offset(Communicator& all, const std::string& host) {
  const int rank = all.rank(), size = all.size();
  std::vector<std::pair<int, double>> children;
  const bool at_root = all.broadcast(host, 0, kWhat) == host;
  double offset = 0;
  for (int distance = 1; distance < size; distance *= 2) {
    if (rank % (2 * distance) != 0) {
      const int parent = rank - distance;
      send_text(all, host, parent, kWhat);
      if (receive_time(all, parent) != 0) answer(all, parent);
      offset = receive_time(all, parent);
      if (at_root) offset = 0;
      break;
    }
    const int child = rank + distance;
    if (child >= size) continue;
    const bool elsewhere = receive_text(all, child, kWhat) != host;
    send_time(all, child, elsewhere ? 1 : 0);
    children.emplace_back(child, elsewhere ? ask(all, child) : 0);
  }
  for (const auto& [child, to_here] : children) send_time(all, child, to_here + offset);
  return offset;
}

}  // namespace convoy
