#pragma once

// Highway for one instruction set: a .cpp defines TILEWISE_TARGET (HWY_SSE4, HWY_AVX2, HWY_AVX3 or HWY_NEON) and
// includes this first. Every instruction set has translation units and kernels of its own and is chosen by our own
// detection (cpu/isa.hpp), so neither foreach_target.h nor libhwy is needed.

#ifndef TILEWISE_TARGET
#error "define TILEWISE_TARGET before including hwy_target-inl.h"
#endif

#include <hwy/detect_targets.h>
#undef HWY_TARGET
#define HWY_TARGET TILEWISE_TARGET
#include <hwy/highway.h>

// Unrolls a loop whose bounds are template constants, so that arrays of vectors live in registers.
#if defined(__clang__)
#define TW_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TW_UNROLL _Pragma("GCC unroll 16")
#endif
