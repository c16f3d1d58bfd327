#pragma once

// Checks of lengths, offsets and page tables that lie in host memory.

#include "kernel/kernel.hpp"

namespace tilewise::api {

// Throws std::invalid_argument when a length exceeds its slot or is negative, offsets do not start at 0, decrease or
// end beyond the tensor, or a used page does not exist. Arrays without an address are skipped.
void check_host_lengths(const Problem& problem, const Buffers& buffers);

}  // namespace tilewise::api
