// The micro-kernels as the avx2 kernels see them.
#define TILEWISE_TARGET HWY_AVX2
#include "cpu/micro_target-inl.h"

namespace tilewise::micro {

const Target avx2{"avx2", isa::avx2, functions<float>(), functions<double>()};

}  // namespace tilewise::micro
