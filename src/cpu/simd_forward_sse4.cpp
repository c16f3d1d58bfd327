// cpu.sse4.forward.
#define TILEWISE_TARGET HWY_SSE4
#include "cpu/simd_kernel-inl.h"
#include "cpu/simd_kernels.hpp"

namespace tilewise::cpu {

namespace simd = HWY_NAMESPACE;

const Kernel sse4_forward{
    .name = "cpu.sse4.forward",
    .supports = [](const Problem& p) { return simd::supports_simd(p, isa::sse4, "SSE4.2"); },
    .rank = [](const Problem&) { return 10; },
    .tile = simd::forward_tile,
    .workspace = simd::forward_workspace,
    .run = simd::run_forward,
};

}  // namespace tilewise::cpu
