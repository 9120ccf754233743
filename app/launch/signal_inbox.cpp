// SPDX-License-Identifier: Apache-2.0
#include "app/launch/signal_inbox.h"

#include <csignal>

namespace convoy {

namespace {

volatile std::sig_atomic_t g_count = 0;
volatile std::sig_atomic_t g_first = 0;

void remember(int signal) {
  if (g_first == 0) g_first = signal;
  g_count = g_count + 1;
}

}  // namespace

SignalInbox::SignalInbox(const std::vector<int>& signals) {
  g_count = 0;
  g_first = 0;
  for (const int signal : signals) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
    caught_.push_back(signal);
  }
}

SignalInbox::~SignalInbox() {
  for (const int signal : caught_) std::signal(signal, SIG_DFL);
}

void SignalInbox::look() {
  const int count = g_count;
  if (count == seen_) return;
  const auto now = std::chrono::steady_clock::now();
  if (first_ == 0) {
    first_ = g_first;
    first_at_ = now;
  } else if (now - first_at_ > std::chrono::seconds(1)) {
    insisted_ = true;
  }
  seen_ = count;
}

std::optional<int> SignalInbox::first() {
  look();
  return first_ == 0 ? std::nullopt : std::optional<int>(first_);
}

bool SignalInbox::insisted() {
  look();
  return insisted_;
}

}  // namespace convoy
