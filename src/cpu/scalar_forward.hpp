#pragma once

// cpu.scalar.forward: attention as DESIGN section 2 defines it, all of it, for every dtype and stride. The executable
// specification of the forward pass: every other kernel is held to the same cases and may refuse, this one does not.

#include "kernel/kernel.hpp"

namespace tilewise::cpu {

extern const Kernel scalar_forward;

}  // namespace tilewise::cpu
