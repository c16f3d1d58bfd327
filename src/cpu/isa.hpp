#pragma once

// Which instruction sets this processor and operating system offer, as isa:: bits of kernel/kernel.hpp.

#include <cstdint>

namespace tilewise::cpu {

// Found once per process. A set is reported only when every instruction that our kernels use from it is there.
std::uint32_t cpu_features();

}  // namespace tilewise::cpu
