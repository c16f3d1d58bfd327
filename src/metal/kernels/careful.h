#pragma once

// The slow path of a forward row: one query at a time by a whole simdgroup, an invisible key is not even read. Needed
// when the products gave something that is not finite: 0 * NaN and 0 * inf of an invisible value, or an overflow that a
// row with its true maximum does not have. What stays NaN here is the right answer.

#include "scores.h"

namespace tilewise {
namespace msl {

// K and V of one sequence and head.
template <typename T>
struct Keys {
  device const T* k;
  device const T* v;  // at the first column of the block that is computed
  device const int* table;
  core::Sequence sequence;
  tw_i64 item, kv_head;
};

template <typename T>
inline device const T* key_at(constant ForwardArguments& a, Keys<T> keys, int j) {
  return keys.k + key_offset(a, a.k, keys.table, keys.sequence, keys.item, keys.kv_head, j);
}
template <typename T>
inline device const T* value_at(constant ForwardArguments& a, Keys<T> keys, int j) {
  return keys.v + key_offset(a, a.v, keys.table, keys.sequence, keys.item, keys.kv_head, j);
}

// Query i over keys [first, end): writes `columns` elements of o, normalised, returns the row, in natural units. `rows`
// holds the sink, or no keys. Sums are kept below overflow by an exact power of two that exceeds the number of keys.
template <int max_columns, typename T, typename Out>
inline Rows<float> attend_carefully(constant ForwardArguments& a, Keys<T> keys, Terms<T> terms, device const T* query,
                                    int i, int first, int end, Rows<float> rows, device Out* o, tw_i64 o_stride,
                                    int columns, ushort lane) {
  const float shrink = ldexp(1.0f, -int(32 - clz(uint(end - first))));
  float u[(max_columns + 31) / 32];
  for (int c = 0; c < (max_columns + 31) / 32; ++c) u[c] = 0.0f;
  for (int j = first; j < end; ++j) {
    device const T* key = key_at(a, keys, j);
    float part = 0.0f;
    for (int d = lane; d < int(a.head_dim); d += 32) part += float(query[d * a.q.d]) * float(key[d * a.k.d]);
    const float s = score(a, terms, simd_sum(part), i, j);
    if (s == -INFINITY) continue;
    const Grown<float> grown = grow(rows, s, Ops<float>::log2_e());
    const float w = weight(s, grown.rows.m, Ops<float>::log2_e());
    rows = add(grown.rows, w);
    device const T* value = value_at(a, keys, j);
    for (int c = 0; lane + 32 * c < columns; ++c) {
      u[c] = u[c] * grown.alpha + w * shrink * float(value[(lane + 32 * c) * a.v.d]);
    }
  }
  const float factor = inverse_sum(rows) / shrink;
  for (int c = 0; lane + 32 * c < columns; ++c) o[(lane + 32 * c) * o_stride] = Out(u[c] * factor);
  return rows;
}

}  // namespace msl
}  // namespace tilewise
