// The list of SIMD kernels: what the architecture has, nothing elsewhere.
#include "cpu/simd_kernels.hpp"

#include <vector>

namespace tilewise::cpu {

std::span<const Kernel> simd_kernels() {
#if defined(__x86_64__)
  static const std::vector<Kernel> kernels{avx512_forward, avx512_decode, avx2_forward,
                                           avx2_decode,    sse4_forward,  sse4_decode};
#elif defined(__aarch64__)
  static const std::vector<Kernel> kernels{neon_forward, neon_decode};
#else
  static const std::vector<Kernel> kernels;
#endif
  return kernels;
}

}  // namespace tilewise::cpu
