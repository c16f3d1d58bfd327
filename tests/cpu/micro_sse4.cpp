// The micro-kernels as the sse4 kernels see them.
#define TILEWISE_TARGET HWY_SSE4
#include "cpu/micro_target-inl.h"

namespace tilewise::micro {

const Target sse4{"sse4", isa::sse4, functions<float>(), functions<double>()};

}  // namespace tilewise::micro
