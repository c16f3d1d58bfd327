// cpu.avx512.decode.
#define TILEWISE_TARGET HWY_AVX3
#include "cpu/simd_decode_kernel-inl.h"
#include "cpu/simd_kernels.hpp"

namespace tilewise::cpu {

namespace simd = HWY_NAMESPACE;

const Kernel avx512_decode{
    .name = "cpu.avx512.decode",
    .supports = [](const Problem& p) { return simd::supports_decode(p, isa::avx512, "AVX-512"); },
    .rank = [](const Problem& p) { return simd::prefers_decode(p) ? 30 + 1 : 30 - 1; },
    .tile = simd::decode_tile,
    .workspace = simd::decode_workspace,
    .run = simd::run_decode,
};

}  // namespace tilewise::cpu
