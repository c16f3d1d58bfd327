// cpu.neon.forward.
#define TILEWISE_TARGET HWY_NEON
#include "cpu/simd_kernel-inl.h"
#include "cpu/simd_kernels.hpp"

namespace tilewise::cpu {

namespace simd = HWY_NAMESPACE;

const Kernel neon_forward{
    .name = "cpu.neon.forward",
    .supports = [](const Problem& p) { return simd::supports_simd(p, isa::neon, "NEON"); },
    .rank = [](const Problem&) { return 10; },
    .tile = simd::forward_tile,
    .workspace = simd::forward_workspace,
    .run = simd::run_forward,
};

}  // namespace tilewise::cpu
