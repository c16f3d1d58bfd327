#pragma once

// The online softmax of one tile against one block of keys, one vector of L queries at a time: everything is vertical,
// no value crosses lanes.

#include "cpu/micro_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

// Largest score of keys [begin, end); s: [keys, tile_lanes], offset to the vector. -inf for no keys.
template <class T>
HWY_INLINE Vec<T> row_max(const T* HWY_RESTRICT s, tw_i64 begin, tw_i64 end) {
  const Tag<T> d;
  Vec<T> a = Ops<Vec<T>>::minus_infinity();
  Vec<T> b = a;
  Vec<T> e = a;
  Vec<T> f = a;
  tw_i64 key = begin;
  for (; key + 4 <= end; key += 4) {  // four chains hide the latency of max
    const T* const row = s + key * tile_lanes<T>;
    a = hn::Max(a, hn::Load(d, row));
    b = hn::Max(b, hn::Load(d, row + tile_lanes<T>));
    e = hn::Max(e, hn::Load(d, row + 2 * tile_lanes<T>));
    f = hn::Max(f, hn::Load(d, row + 3 * tile_lanes<T>));
  }
  for (; key < end; ++key) a = hn::Max(a, hn::Load(d, s + key * tile_lanes<T>));
  return hn::Max(hn::Max(a, b), hn::Max(e, f));
}

// Scores become weights in place; returns their sum, added in the order of the keys.
template <class T>
HWY_INLINE Vec<T> weights(T* HWY_RESTRICT s, tw_i64 begin, tw_i64 end, Vec<T> m, Vec<T> unit) {
  const Tag<T> d;
  Vec<T> sum = hn::Zero(d);
  for (tw_i64 key = begin; key < end; ++key) {
    T* const row = s + key * tile_lanes<T>;
    const Vec<T> p = weight(hn::Load(d, row), m, unit);
    hn::Store(p, d, row);
    sum = hn::Add(sum, p);
  }
  return sum;
}

// One step of the recurrence for one vector: scores of keys [begin, end), in units worth `unit` log2 units each, become
// weights, m and l move on, alpha tells what O is scaled by. `lift` raises the maximum. m, l, alpha: [L].
template <class T>
HWY_INLINE void softmax_block(T* HWY_RESTRICT s, tw_i64 begin, tw_i64 end, T unit, T lift, T* HWY_RESTRICT m,
                              T* HWY_RESTRICT l, T* HWY_RESTRICT alpha) {
  const Tag<T> d;
  const Vec<T> block_max = hn::Add(row_max<T>(s, begin, end), hn::Set(d, lift));
  const auto grown = grow(Rows<Vec<T>>{hn::Load(d, m), hn::Load(d, l)}, block_max, hn::Set(d, unit));
  const auto rows = add(grown.rows, weights<T>(s, begin, end, grown.rows.m, hn::Set(d, unit)));
  hn::Store(rows.m, d, m);
  hn::Store(rows.l, d, l);
  hn::Store(grown.alpha, d, alpha);
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
