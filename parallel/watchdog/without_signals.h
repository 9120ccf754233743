// SPDX-License-Identifier: Apache-2.0
//
// Blocks all signals of the calling thread during its lifetime. For the start of a thread, which inherits the mask:
// signals are for the threads that expect them.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace convoy {

class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace convoy
