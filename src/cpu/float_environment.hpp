#pragma once

// Kernels compute with IEEE defaults (nearest rounding, subnormals kept) whatever mode the calling thread is in.

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tilewise::cpu {

// While it lives: round to nearest, no flush-to-zero, no denormals-are-zero, exceptions masked. Then as found.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
#if defined(__x86_64__)
    saved_ = _mm_getcsr();
    _mm_setcsr(0x1f80u);  // the reset value of MXCSR
#elif defined(__aarch64__)
    std::uint64_t value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    saved_ = value;
    asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
#endif
  }
  ~DefaultFloatEnvironment() {
#if defined(__x86_64__)
    _mm_setcsr(static_cast<unsigned>(saved_));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(saved_));
#endif
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::uint64_t saved_ = 0;
};

}  // namespace tilewise::cpu
