// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/backend/cuda/host/fiber.h"

#include <sys/mman.h>

#include <new>

#ifdef CONVOY_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace convoy::on_host {

namespace {

constexpr std::size_t kPageBytes = std::size_t{64} << 10;  // the largest page that Linux has on our platforms
constexpr std::size_t kStackBytes = std::size_t{64} << 10;

// The fiber that is entered for the first time, and the one that was left for it.
Fiber* entered = nullptr;
Fiber* left = nullptr;

}  // namespace

Fiber::Fiber(void (*body)()) : body_(body) {
  void* pages = mmap(nullptr, kPageBytes + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages, kPageBytes, PROT_NONE) != 0) throw std::bad_alloc();
  pages_ = static_cast<std::byte*>(pages);
  stack_ = pages_ + kPageBytes;
  stack_bytes_ = kStackBytes;
  restart();
}

Fiber::~Fiber() {
  if (pages_ != nullptr) munmap(pages_, kPageBytes + kStackBytes);
}

void Fiber::restart() {
#ifdef CONVOY_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(stack_, stack_bytes_);  // of frames that were never left
#endif
  getcontext(&context_);
  context_.uc_stack.ss_sp = pages_ + kPageBytes;
  context_.uc_stack.ss_size = stack_bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::begin, 0);
}

void Fiber::begin() {
#ifdef CONVOY_ADDRESS_SANITIZER
  const void* stack = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  if (left->pages_ == nullptr) {
    left->stack_ = stack;
    left->stack_bytes_ = bytes;
  }
#endif
  entered->body_();
}

void Fiber::resume(Fiber& next) {
  entered = &next;
  left = this;
#ifdef CONVOY_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&fake_stack_, next.stack_, next.stack_bytes_);
#endif
  swapcontext(&context_, &next.context_);
#ifdef CONVOY_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace convoy::on_host
