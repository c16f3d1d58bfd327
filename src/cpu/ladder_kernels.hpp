#pragma once

// The rungs of src/reference/ as kernels, so that the same check, bench and explain run them: ladder.standard,
// ladder.online_softmax, ladder.one_query, ladder.blockwise, ladder.split_and_merge. They take the plain problem only
// and are never chosen unless forced. They allocate their matrices themselves.

#include <span>

#include "kernel/kernel.hpp"

namespace tilewise::cpu {

std::span<const Kernel> ladder_kernels();

}  // namespace tilewise::cpu
