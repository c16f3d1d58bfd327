#pragma once

// Reads lengths, offsets and tables on the host: which rows belong to batch item or packed sequence b.
// Only for backends whose buffers the host can read (CPU). Validation has already refused what is out of range.

#include "core/index_map.h"
#include "kernel/kernel.hpp"

namespace tilewise {

// Element `index` of an int32 or int64 vector with any stride.
inline std::int64_t integer_at(const TensorSpec& spec, const void* data, std::int64_t index) {
  const std::int64_t offset = index * spec.strides[0];
  return spec.dtype == DType::int32 ? static_cast<const std::int32_t*>(data)[offset]
                                    : static_cast<const std::int64_t*>(data)[offset];
}

inline core::Sequence sequence_of(const Problem& p, const Buffers& buffers, std::int64_t b) {
  core::Range q_slot{0, p.q_len};
  core::Range k_slot{0, p.kv_len};
  if (p.packed_queries()) q_slot = {integer_at(p.cu_q, buffers.cu_q, b), integer_at(p.cu_q, buffers.cu_q, b + 1)};
  if (p.packed_keys()) k_slot = {integer_at(p.cu_k, buffers.cu_k, b), integer_at(p.cu_k, buffers.cu_k, b + 1)};
  const std::int64_t q_len =
      p.q_lengths.present() ? integer_at(p.q_lengths, buffers.q_lengths, b) : q_slot.end - q_slot.begin;
  const std::int64_t k_len =
      p.kv_lengths.present() ? integer_at(p.kv_lengths, buffers.kv_lengths, b) : k_slot.end - k_slot.begin;
  return core::clamped_sequence(p.packed_queries() ? 0 : b, p.packed_keys() ? 0 : b, q_slot, k_slot, q_len, k_len);
}

inline core::Band band_for(const Problem& p, const core::Sequence& sequence) {
  return core::band_of(p.has_left, p.left, p.has_right, p.right,
                       core::band_delta(p.corner, p.delta, sequence.q_len, sequence.k_len));
}

inline core::Strides strides_of(const TensorSpec& spec) {
  return {spec.strides[0], spec.strides[1], spec.strides[2], spec.rank > 3 ? spec.strides[3] : 0};
}

}  // namespace tilewise
