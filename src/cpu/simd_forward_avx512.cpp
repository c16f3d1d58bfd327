// cpu.avx512.forward.
#define TILEWISE_TARGET HWY_AVX3
#include "cpu/simd_kernel-inl.h"
#include "cpu/simd_kernels.hpp"

namespace tilewise::cpu {

namespace simd = HWY_NAMESPACE;

const Kernel avx512_forward{
    .name = "cpu.avx512.forward",
    .supports = [](const Problem& p) { return simd::supports_simd(p, isa::avx512, "AVX-512"); },
    .rank = [](const Problem&) { return 30; },
    .tile = simd::forward_tile,
    .workspace = simd::forward_workspace,
    .run = simd::run_forward,
};

}  // namespace tilewise::cpu
