#include "fiber.hpp"

#include <sys/mman.h>

#include <new>

#if !defined(__x86_64__)
#error "the bench's context switch is written for x86-64 (System V)"
#endif

// Callee-saved registers go on the old stack, the new stack's are taken off. x87 and MXCSR control words are the same
// in all lanes.
asm(R"(
.text
.globl tw_switch_fiber
.type tw_switch_fiber, @function
tw_switch_fiber:
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
.size tw_switch_fiber, .-tw_switch_fiber

.type tw_start_fiber, @function
tw_start_fiber:
  movq %r12, %rdi
  callq *%rbx
  ud2
.size tw_start_fiber, .-tw_start_fiber
)");

extern "C" void tw_start_fiber();

namespace tilewise::metal_bench {
namespace {
constexpr std::size_t guard_bytes = 4096;
}

FiberStacks::FiberStacks(std::size_t count, std::size_t bytes) : base_(0), bytes_(count * bytes), stack_bytes_(bytes) {
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = reinterpret_cast<std::uintptr_t>(memory);
  for (std::size_t i = 0; i < count; ++i) {
    mprotect(static_cast<char*>(memory) + i * bytes, guard_bytes, PROT_NONE);
  }
}

FiberStacks::~FiberStacks() { munmap(reinterpret_cast<void*>(base_), bytes_); }

void* FiberStacks::prepare(std::size_t fiber, void (*entry)(void*), void* argument) const {
  // Stacks start at different offsets inside their pages, or all lanes would compete for the same cache sets.
  const std::uintptr_t top = base_ + (fiber + 1) * stack_bytes_ - 64 - (fiber * 320) % 4096;
  auto* slot = reinterpret_cast<std::uintptr_t*>(top & ~std::uintptr_t{15});
  slot -= 2;  // tw_start_fiber calls with the stack aligned to 16 bytes
  *--slot = reinterpret_cast<std::uintptr_t>(&tw_start_fiber);
  *--slot = 0;                                           // rbp
  *--slot = reinterpret_cast<std::uintptr_t>(entry);     // rbx
  *--slot = reinterpret_cast<std::uintptr_t>(argument);  // r12
  *--slot = 0;                                           // r13
  *--slot = 0;                                           // r14
  *--slot = 0;                                           // r15
  return slot;
}

}  // namespace tilewise::metal_bench
