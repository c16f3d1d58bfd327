// cpu.neon.decode.
#define TILEWISE_TARGET HWY_NEON
#include "cpu/simd_decode_kernel-inl.h"
#include "cpu/simd_kernels.hpp"

namespace tilewise::cpu {

namespace simd = HWY_NAMESPACE;

const Kernel neon_decode{
    .name = "cpu.neon.decode",
    .supports = [](const Problem& p) { return simd::supports_decode(p, isa::neon, "NEON"); },
    .rank = [](const Problem& p) { return simd::prefers_decode(p) ? 10 + 1 : 10 - 1; },
    .tile = simd::decode_tile,
    .workspace = simd::decode_workspace,
    .run = simd::run_decode,
};

}  // namespace tilewise::cpu
