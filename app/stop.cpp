// SPDX-License-Identifier: Apache-2.0
#include "app/stop.h"

#include <csignal>

#include "app/config.h"

namespace convoy {

namespace {

volatile std::sig_atomic_t g_signalled = 0;

void remember(int signal) {
  g_signalled = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

StopRequest::StopRequest(const std::vector<std::string>& signals, std::optional<std::chrono::seconds> max_time) {
  g_signalled = 0;
  for (const std::string& name : signals) {
    signals_.push_back(signal_number(name));
    std::signal(signals_.back(), remember);
  }
  if (max_time) deadline_ = std::chrono::steady_clock::now() + *max_time;
}

// The handlers stay: all ranks stop as soon as one has its signal, and those of the others may still be on their way.
StopRequest::~StopRequest() = default;

bool StopRequest::signalled() const { return g_signalled != 0; }

bool StopRequest::time_is_up() const { return deadline_ && std::chrono::steady_clock::now() >= *deadline_; }

}  // namespace convoy
