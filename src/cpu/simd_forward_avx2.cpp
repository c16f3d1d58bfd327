// cpu.avx2.forward.
#define TILEWISE_TARGET HWY_AVX2
#include "cpu/simd_kernel-inl.h"
#include "cpu/simd_kernels.hpp"

namespace tilewise::cpu {

namespace simd = HWY_NAMESPACE;

const Kernel avx2_forward{
    .name = "cpu.avx2.forward",
    .supports = [](const Problem& p) { return simd::supports_simd(p, isa::avx2, "AVX2"); },
    .rank = [](const Problem&) { return 20; },
    .tile = simd::forward_tile,
    .workspace = simd::forward_workspace,
    .run = simd::run_forward,
};

}  // namespace tilewise::cpu
