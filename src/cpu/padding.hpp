#pragma once

// Rows that are padding: their output is 0 and their lse -inf, whatever lies in their inputs.

#include <cstring>
#include <limits>

#include "kernel/kernel.hpp"
#include "kernel/sequence.hpp"

namespace tilewise::cpu {

// Writes o = 0 and lse = -inf for rows [rows.begin, rows.end) of head h of item `item`.
inline void clear_rows(const Problem& p, const Buffers& buffers, std::int64_t item, std::int64_t h, core::Range rows) {
  const core::Strides o = strides_of(p.o);
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    auto* row = static_cast<char*>(buffers.o) + core::offset_of(o, item, h, i, 0) * element;
    for (std::int64_t c = 0; c < p.v_dim; ++c) {
      std::memset(row + c * o.d * element, 0, static_cast<std::size_t>(element));  // all bits 0 is 0.0 in every dtype
    }
    if (!p.lse.present()) continue;
    const std::int64_t at = core::offset_of(strides_of(p.lse), item, h, i, 0);
    if (p.lse.dtype == DType::float64) {
      static_cast<double*>(buffers.lse)[at] = -std::numeric_limits<double>::infinity();
    } else {
      static_cast<float*>(buffers.lse)[at] = -std::numeric_limits<float>::infinity();
    }
  }
}

// Packed rows from cu_q[n] on belong to no sequence: clears them in every head. Nothing to do for other layouts.
inline void clear_unowned_rows(const Problem& p, const Buffers& buffers) {
  if (!p.packed_queries()) return;
  const core::Range unowned{integer_at(p.cu_q, buffers.cu_q, p.batch), p.q_len};
  for (std::int64_t h = 0; h < p.q_heads; ++h) clear_rows(p, buffers, 0, h, unowned);
}

}  // namespace tilewise::cpu
