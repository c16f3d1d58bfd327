// cpu.avx2.decode.
#define TILEWISE_TARGET HWY_AVX2
#include "cpu/simd_decode_kernel-inl.h"
#include "cpu/simd_kernels.hpp"

namespace tilewise::cpu {

namespace simd = HWY_NAMESPACE;

const Kernel avx2_decode{
    .name = "cpu.avx2.decode",
    .supports = [](const Problem& p) { return simd::supports_decode(p, isa::avx2, "AVX2"); },
    .rank = [](const Problem& p) { return simd::prefers_decode(p) ? 20 + 1 : 20 - 1; },
    .tile = simd::decode_tile,
    .workspace = simd::decode_workspace,
    .run = simd::run_decode,
};

}  // namespace tilewise::cpu
