// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/backend/cuda/host/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#ifdef CONVOY_ADDRESS_SANITIZER
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include <tuple>
#include <utility>
#endif

#ifdef __x86_64__
// swapcontext() calls the kernel to save signal masks, which would take most of the time of the tests. This saves what
// a function must keep (System V ABI, AMD64, 3.2.1) on the stack, stores its pointer, and does the reverse on the other
// one. The control words of x87 and SSE are the same in all fibers.
extern "C" void convoy_switch_stack(void** saved, void* next);
asm(R"(
.text
.type convoy_switch_stack, @function
convoy_switch_stack:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size convoy_switch_stack, .-convoy_switch_stack
)");
#endif

namespace convoy::on_host {

namespace {

constexpr std::size_t kPageBytes = std::size_t{64} << 10;  // the largest page that Linux has on our platforms
constexpr std::size_t kStackBytes = std::size_t{64} << 10;

// The fiber that is entered for the first time.
Fiber* entered = nullptr;

#ifdef CONVOY_ADDRESS_SANITIZER
// The stack of the host thread, of which there may be several.
std::pair<void*, std::size_t> own_stack() {
  static thread_local const auto stack = [] {
    pthread_attr_t attributes;
    void* start = nullptr;
    std::size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &start, &bytes);
    pthread_attr_destroy(&attributes);
    return std::pair(start, bytes);
  }();
  return stack;
}
#endif

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
#ifdef __x86_64__
  // From the lowest address: six registers, where to return to, and the return address of begin(), which has none.
  auto** top = reinterpret_cast<void**>(pages_ + kPageBytes + stack_bytes_) - 8;
  std::fill_n(top, 8, nullptr);
  top[6] = reinterpret_cast<void*>(&Fiber::begin);
  saved_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = pages_ + kPageBytes;
  context_.uc_stack.ss_size = stack_bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::begin, 0);
#endif
}

void Fiber::begin() {
#ifdef CONVOY_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  entered->body_();
}

void Fiber::resume(Fiber& next) {
  entered = &next;
#ifdef CONVOY_ADDRESS_SANITIZER
  if (pages_ == nullptr) std::tie(stack_, stack_bytes_) = own_stack();
  __sanitizer_start_switch_fiber(&fake_stack_, next.stack_, next.stack_bytes_);
#endif
#ifdef __x86_64__
  convoy_switch_stack(&saved_, next.saved_);
#else
  swapcontext(&context_, &next.context_);
#endif
#ifdef CONVOY_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace convoy::on_host
