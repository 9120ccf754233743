// SPDX-License-Identifier: Apache-2.0
//
// Fibers: flows of control with stacks of their own that hand the host thread to each other.
#pragma once

#include <cstddef>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace convoy::on_host {

class Fiber {
 public:
  /// The flow that the host thread is in, which may be another one each time it resumes a fiber.
  Fiber() = default;
  /// One that begins with body(), which never returns, on a stack with a page behind it that nothing may touch.
  explicit Fiber(void (*body)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Begins with body() again when it is resumed next; what it was doing is forgotten.
  void restart();
  /// From here, the fiber that runs, to `next`; returns when somebody resumes this.
  void resume(Fiber& next);

 private:
  static void begin();

  void (*body_)() = nullptr;
#ifdef __x86_64__
  void* saved_ = nullptr;  // its stack pointer, while others run
#else
  ucontext_t context_{};
#endif
  std::byte* pages_ = nullptr;  // null: the host thread's stack
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace convoy::on_host
