#pragma once

// The two products for few queries, with the head dimension in the lanes: K and V stream through once, as they lie in
// memory (16-bit values are widened on the way), so that memory sets the pace. Queries, scores and outputs are
// row-major here.

#include <hwy/cache_control.h>

#include "cpu/micro_transpose-inl.h"
#include "cpu/simd_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

// 4 keys x dot_queries accumulators; dot_queries x 4 for the values. 16 of 32 registers, or 8 of 16.
inline constexpr int dot_queries = tile_vectors == 4 ? 4 : 2;
inline constexpr int dot_keys = 4;

HWY_INLINE Vec<float> load_wide(const float* from) { return hn::LoadU(Tag<float>(), from); }
HWY_INLINE Vec<double> load_wide(const double* from) { return hn::LoadU(Tag<double>(), from); }
HWY_INLINE Vec<float> load_wide(const Float16* from) { return widen(from); }
HWY_INLINE Vec<float> load_wide(const BFloat16* from) { return widen(from); }

// The sum of the 128-bit blocks of x, stored to `to`.
template <class T>
HWY_INLINE void store_block_sum(Vec<T> x, T* to) {
  const hn::FixedTag<T, 16 / sizeof(T)> d128;
#if HWY_MAX_BYTES == 16
  hn::StoreU(x, d128, to);
#else
#if HWY_MAX_BYTES == 32
  const auto low = x;
#else
  const hn::Twice<decltype(d128)> d256;
  const auto low = hn::Add(hn::LowerHalf(d256, x), hn::UpperHalf(d256, x));
#endif
  hn::StoreU(hn::Add(hn::LowerHalf(d128, low), hn::UpperHalf(d128, low)), d128, to);
#endif
}

// to[i] = the sum of x[i]'s lanes.
HWY_INLINE void store_lane_sums(Vec<float> (&x)[4], float* to) {
  transpose_in_blocks(x);
  store_block_sum<float>(hn::Add(hn::Add(x[0], x[1]), hn::Add(x[2], x[3])), to);
}
HWY_INLINE void store_lane_sums(Vec<double> (&x)[4], double* to) {
  for (int half = 0; half < 4; half += 2) {
    Vec<double> pair[2] = {x[half], x[half + 1]};
    transpose_in_blocks(pair);
    store_block_sum<double>(hn::Add(pair[0], pair[1]), to + half);
  }
}

// Rows that are read soon, asked for a few at a time while others are worked on: no stream of its own can keep as many
// lines of memory under way.
struct Ahead {
  const void* data;  // null: nothing
  tw_i64 row_bytes;  // from row to row
  tw_i64 bytes;      // of a row
};

HWY_INLINE void fetch_ahead(const Ahead& ahead, tw_i64 row) {
  constexpr tw_i64 line = 64;
  if (ahead.data == nullptr) return;
  const char* const from = static_cast<const char*>(ahead.data) + row * ahead.row_bytes;
  for (tw_i64 at = 0; at < ahead.bytes; at += line) hwy::Prefetch(from + at);
}

// s[q][r] = dot of query q and key r, for Q queries and 4 keys. depth is a multiple of L; rows[r] are the keys.
template <int Q, class Stored, class T>
HWY_INLINE void dots_tile(const Stored* const (&rows)[dot_keys], const T* HWY_RESTRICT q, tw_i64 q_row, tw_i64 depth,
                          T* HWY_RESTRICT s, tw_i64 s_row) {
  const Tag<T> d;
  Vec<T> sum[Q][dot_keys];
  TW_UNROLL
  for (int i = 0; i < Q; ++i) {
    TW_UNROLL
    for (int r = 0; r < dot_keys; ++r) sum[i][r] = hn::Zero(d);
  }
  for (tw_i64 at = 0; at < depth; at += lanes<T>) {
    Vec<T> key[dot_keys];
    TW_UNROLL
    for (int r = 0; r < dot_keys; ++r) key[r] = load_wide(rows[r] + at);
    TW_UNROLL
    for (int i = 0; i < Q; ++i) {
      const Vec<T> query = hn::Load(d, q + i * q_row + at);
      TW_UNROLL
      for (int r = 0; r < dot_keys; ++r) sum[i][r] = hn::MulAdd(query, key[r], sum[i][r]);
    }
  }
  TW_UNROLL
  for (int i = 0; i < Q; ++i) store_lane_sums(sum[i], s + i * s_row);
}

// Scores of keys [0, keys) against `queries` rows. s: [queries, s_row], room for a multiple of 4 keys.
template <class Stored, class T>
HWY_NOINLINE void dots_block(const Stored* k, tw_i64 k_row, tw_i64 keys, const T* q, tw_i64 q_row, tw_i64 queries,
                             tw_i64 depth, T* s, tw_i64 s_row, const Ahead& ahead) {
  for (tw_i64 key = 0; key < keys; key += dot_keys) {
    for (tw_i64 r = key; r < core::min_i64(key + dot_keys, keys); ++r) fetch_ahead(ahead, r);
    const auto row = [&](tw_i64 r) { return k + core::min_i64(key + r, keys - 1) * k_row; };  // never past the end
    const Stored* const rows[dot_keys] = {row(0), row(1), row(2), row(3)};
    tw_i64 i = 0;
    for (; i + dot_queries <= queries; i += dot_queries) {
      dots_tile<dot_queries>(rows, q + i * q_row, q_row, depth, s + i * s_row + key, s_row);
    }
    for (; i < queries; ++i) dots_tile<1>(rows, q + i * q_row, q_row, depth, s + i * s_row + key, s_row);
  }
}

// o[i] = alpha[i] * o[i] + sum over keys of p[i][key] * v[key], for Q queries and C vectors of value columns. With
// `total`, l[i] += sum of p[i]: in the same order as O, so that equal values give exactly themselves.
template <int Q, int C, bool total, class Stored, class T>
HWY_INLINE void values_tile(const Stored* HWY_RESTRICT v, tw_i64 v_row, tw_i64 keys, const T* HWY_RESTRICT p,
                            tw_i64 p_row, const T* alpha, T* HWY_RESTRICT o, tw_i64 o_row, T* HWY_RESTRICT l,
                            const Ahead& ahead) {
  const Tag<T> d;
  Vec<T> sum[Q][C];
  TW_UNROLL
  for (int i = 0; i < Q; ++i) {
    TW_UNROLL
    for (int c = 0; c < C; ++c) sum[i][c] = hn::Zero(d);
  }
  Vec<T> weights[Q];
  TW_UNROLL
  for (int i = 0; i < Q; ++i) weights[i] = hn::Zero(d);
  for (tw_i64 key = 0; key < keys; ++key) {
    fetch_ahead(ahead, key);
    Vec<T> value[C];
    TW_UNROLL
    for (int c = 0; c < C; ++c) value[c] = load_wide(v + key * v_row + c * lanes<T>);
    TW_UNROLL
    for (int i = 0; i < Q; ++i) {
      const Vec<T> weight = hn::Set(d, p[i * p_row + key]);
      if constexpr (total) weights[i] = hn::Add(weights[i], weight);
      TW_UNROLL
      for (int c = 0; c < C; ++c) sum[i][c] = hn::MulAdd(weight, value[c], sum[i][c]);
    }
  }
  TW_UNROLL
  for (int i = 0; i < Q; ++i) {
    TW_UNROLL
    for (int c = 0; c < C; ++c) {
      T* const at = o + i * o_row + c * lanes<T>;
      hn::Store(hn::MulAdd(hn::Set(d, alpha[i]), hn::Load(d, at), sum[i][c]), d, at);
    }
    if constexpr (total) l[i] += hn::GetLane(weights[i]);
  }
}

template <int C, bool total, class Stored, class T>
HWY_INLINE void values_columns(const Stored* v, tw_i64 v_row, tw_i64 keys, const T* p, tw_i64 p_row, tw_i64 queries,
                               const T* alpha, T* o, tw_i64 o_row, T* l, Ahead ahead) {
  tw_i64 i = 0;
  for (; i + dot_queries <= queries; i += dot_queries) {
    values_tile<dot_queries, C, total>(v, v_row, keys, p + i * p_row, p_row, alpha + i, o + i * o_row, o_row, l + i,
                                       ahead);
    ahead.data = nullptr;
  }
  for (; i < queries; ++i) {
    values_tile<1, C, total>(v, v_row, keys, p + i * p_row, p_row, alpha + i, o + i * o_row, o_row, l + i, ahead);
    ahead.data = nullptr;
  }
}

// The same for all queries and columns, with l; columns is a multiple of L, at least L.
template <class Stored, class T>
HWY_NOINLINE void values_block(const Stored* v, tw_i64 v_row, tw_i64 keys, tw_i64 columns, const T* p, tw_i64 p_row,
                               tw_i64 queries, const T* alpha, T* o, tw_i64 o_row, T* l, const Ahead& ahead) {
  constexpr Ahead nothing{};
  tw_i64 c = 0;
  if (columns < 4 * lanes<T>) {
    values_columns<1, true>(v, v_row, keys, p, p_row, queries, alpha, o, o_row, l, ahead);
    c = lanes<T>;
  } else {
    values_columns<4, true>(v, v_row, keys, p, p_row, queries, alpha, o, o_row, l, ahead);
    c = 4 * lanes<T>;
  }
  for (; c + 4 * lanes<T> <= columns; c += 4 * lanes<T>) {
    values_columns<4, false>(v + c, v_row, keys, p, p_row, queries, alpha, o + c, o_row, l, nothing);
  }
  for (; c < columns; c += lanes<T>) {
    values_columns<1, false>(v + c, v_row, keys, p, p_row, queries, alpha, o + c, o_row, l, nothing);
  }
}

// One query by selection: values of keys with seen[key] == 0 are never multiplied. The same bits where all is finite.
template <class Stored, class T>
HWY_NOINLINE void values_by_selection(const Stored* v, tw_i64 v_row, tw_i64 keys, tw_i64 columns, const T* p,
                                      const T* seen, T alpha, T* o, T* l) {
  const Tag<T> d;
  T total = 0;
  for (tw_i64 key = 0; key < keys; ++key) total += p[key];
  *l += total;
  for (tw_i64 c = 0; c < columns; c += lanes<T>) {
    Vec<T> sum = hn::Zero(d);
    for (tw_i64 key = 0; key < keys; ++key) {
      if (seen[key] != T(0)) sum = hn::MulAdd(hn::Set(d, p[key]), load_wide(v + key * v_row + c), sum);
    }
    hn::Store(hn::MulAdd(hn::Set(d, alpha), hn::Load(d, o + c), sum), d, o + c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
