// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/clock_offset.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "layers/base/trace.h"

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

// Rank 0 asks, the other answers with its clock; the answer lies in the middle of the round trip.
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

void answer(Communicator& all) {
  for (int round = 0; round < kRounds; ++round) {
    static_cast<void>(receive_time(all, 0));
    send_time(all, 0, trace::now());
  }
}

}  // namespace

double clock_offset(Communicator& all, const std::string& host) {
  const std::vector<std::string> hosts = all.all_gather(host, "hosts");
  double offset = 0;
  for (int peer = 1; peer < all.size(); ++peer) {
    if (hosts[static_cast<std::size_t>(peer)] == hosts[0]) continue;
    if (all.rank() == 0) send_time(all, peer, ask(all, peer));
    if (all.rank() == peer) {
      answer(all);
      offset = receive_time(all, 0);
    }
  }
  return offset;
}

}  // namespace convoy
