// cpu.sse4.decode.
#define TILEWISE_TARGET HWY_SSE4
#include "cpu/simd_decode_kernel-inl.h"
#include "cpu/simd_kernels.hpp"

namespace tilewise::cpu {

namespace simd = HWY_NAMESPACE;

const Kernel sse4_decode{
    .name = "cpu.sse4.decode",
    .supports = [](const Problem& p) { return simd::supports_decode(p, isa::sse4, "SSE4.2"); },
    .rank = [](const Problem& p) { return simd::prefers_decode(p) ? 10 + 1 : 10 - 1; },
    .tile = simd::decode_tile,
    .workspace = simd::decode_workspace,
    .run = simd::run_decode,
};

}  // namespace tilewise::cpu
