#pragma once

// The SIMD kernels of this architecture, one per instruction set and shape of problem. Each refuses a machine that
// lacks its instructions, so listing them all is safe anywhere.

#include <span>

#include "kernel/kernel.hpp"

namespace tilewise::cpu {

extern const Kernel sse4_forward;
extern const Kernel avx2_forward;
extern const Kernel avx512_forward;
extern const Kernel neon_forward;

// Few queries over many keys.
extern const Kernel sse4_decode;
extern const Kernel avx2_decode;
extern const Kernel avx512_decode;
extern const Kernel neon_decode;

std::span<const Kernel> simd_kernels();

}  // namespace tilewise::cpu
