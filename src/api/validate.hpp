#pragma once

// The one place where arguments are checked: views and options in, a Problem with its Buffers out.

#include <cstdint>

#include "kernel/kernel.hpp"
#include "tilewise/attention.hpp"

namespace tilewise::api {

struct Call {
  Problem problem;
  Buffers buffers;
};

// Whether data pointers must be there. `optional` (explain, workspace_size) also skips what reads memory: lengths,
// offsets, pages and overlaps of tensors without data.
enum class Addresses : std::uint8_t { required, optional };

// Throws std::invalid_argument naming the first bad argument. Allocates nothing unless it throws.
Call checked_forward(const ForwardTensors& tensors, const AttentionOptions& options, Addresses addresses);

// Whether a call fits a plan made for `planned`: everything equal but addresses, alignments not below the planned ones,
// and dropout's seed and offset free. Throws std::invalid_argument naming the first difference.
void check_matches_plan(const Problem& planned, const Problem& given);

}  // namespace tilewise::api
