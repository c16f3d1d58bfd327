// The micro-kernels as the neon kernels see them.
#define TILEWISE_TARGET HWY_NEON
#include "cpu/micro_target-inl.h"

namespace tilewise::micro {

const Target neon{"neon", isa::neon, functions<float>(), functions<double>()};

}  // namespace tilewise::micro
