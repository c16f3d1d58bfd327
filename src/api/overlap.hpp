#pragma once

// Do two strided tensors share an element? Exact, so that interleaved disjoint slices (packed QKV) are told from
// overlaps.

#include "tilewise/types.hpp"

namespace tilewise::api {

// Whether some byte belongs to an element of both. Empty tensors share nothing. Answers true when the search is cut
// short, which takes strides that no real layout has.
bool share_elements(const ConstTensorView& a, const ConstTensorView& b);

// Whether two different indices of one tensor reach the same byte: a stride of 0, or rows that run into each other.
bool overlaps_itself(const ConstTensorView& tensor);

}  // namespace tilewise::api
