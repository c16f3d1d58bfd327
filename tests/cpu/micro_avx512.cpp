// The micro-kernels as the avx512 kernels see them.
#define TILEWISE_TARGET HWY_AVX3
#include "cpu/micro_target-inl.h"

namespace tilewise::micro {

const Target avx512{"avx512", isa::avx512, functions<float>(), functions<double>()};

}  // namespace tilewise::micro
