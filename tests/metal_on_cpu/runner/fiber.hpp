#pragma once

// Stackful coroutines for the lanes of one threadgroup: one system thread, a switch of about ten instructions.

#include <cstddef>
#include <cstdint>

namespace tilewise::metal_bench {

class FiberStacks {
 public:
  FiberStacks(std::size_t count, std::size_t bytes);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  // A stack pointer which, when switched to, calls entry(argument). entry must never return.
  [[nodiscard]] void* prepare(std::size_t fiber, void (*entry)(void*), void* argument) const;
  [[nodiscard]] bool contains(std::uintptr_t address) const { return address - base_ < bytes_; }

 private:
  std::uintptr_t base_;
  std::size_t bytes_;
  std::size_t stack_bytes_;
};

// Saves the running context in *from and continues at `to`.
extern "C" void tw_switch_fiber(void** from, void* to);

}  // namespace tilewise::metal_bench
