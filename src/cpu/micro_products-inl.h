#pragma once

// The two matrix products of attention with queries in the lanes: vector v of a tile holds queries v*L .. v*L+L-1, keys
// and value columns are broadcast from row-major memory, so K and V need no packing. R x N accumulators stay in
// registers over the whole depth. Every lane is summed in the order of the depth alone: a query's bits depend neither
// on R and N nor on its neighbours.

#include "cpu/ops_hwy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

// Registers decide the shape: 6 x 4 accumulators + 4 + 1 fit in 32, 6 x 2 + 2 + 1 (+ 1 for a product without FMA) in
// 16. A wider tile would spill, a narrower one is bound by loads.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int tile_vectors = 4;
#else
inline constexpr int tile_vectors = 2;
#endif
inline constexpr int panel_rows = 6;  // key rows, or value columns, in one panel

template <class T>
inline constexpr int tile_lanes = tile_vectors * lanes<T>;  // queries in a tile

// S[r][v] = sum_d K[r][d] * Q[d][v] for R key rows and N vectors.
// k: [R, k_stride] elements; q: [depth, tile_lanes], s: [R, tile_lanes], both 64-byte aligned.
template <int R, int N, class T>
HWY_NOINLINE void scores_panel(const T* HWY_RESTRICT k, tw_i64 k_stride, const T* HWY_RESTRICT q, tw_i64 depth,
                               T* HWY_RESTRICT s) {
  const Tag<T> d;
  Vec<T> sum[R][N];
  TW_UNROLL
  for (int r = 0; r < R; ++r) {
    TW_UNROLL
    for (int n = 0; n < N; ++n) sum[r][n] = hn::Zero(d);
  }
  for (tw_i64 i = 0; i < depth; ++i) {
    Vec<T> query[N];
    TW_UNROLL
    for (int n = 0; n < N; ++n) query[n] = hn::Load(d, q + i * tile_lanes<T> + n * lanes<T>);
    TW_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec<T> key = hn::Set(d, k[r * k_stride + i]);
      TW_UNROLL
      for (int n = 0; n < N; ++n) sum[r][n] = hn::MulAdd(key, query[n], sum[r][n]);
    }
  }
  TW_UNROLL
  for (int r = 0; r < R; ++r) {
    TW_UNROLL
    for (int n = 0; n < N; ++n) hn::Store(sum[r][n], d, s + r * tile_lanes<T> + n * lanes<T>);
  }
}

template <int R, class T>
HWY_INLINE void scores_rows(int vectors, const T* k, tw_i64 k_stride, const T* q, tw_i64 depth, T* s) {
  switch (vectors) {
    case 1: return scores_panel<R, 1>(k, k_stride, q, depth, s);
    case 2: return scores_panel<R, 2>(k, k_stride, q, depth, s);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
    case 3: return scores_panel<R, 3>(k, k_stride, q, depth, s);
    case 4: return scores_panel<R, 4>(k, k_stride, q, depth, s);
#endif
    default: return;
  }
}

// The same for any number of key rows.
template <class T>
HWY_INLINE void scores_block(tw_i64 rows, int vectors, const T* k, tw_i64 k_stride, const T* q, tw_i64 depth, T* s) {
  tw_i64 r = 0;
  const auto at = [&](tw_i64 row) { return s + row * tile_lanes<T>; };
  for (; r + 6 <= rows; r += 6) scores_rows<6>(vectors, k + r * k_stride, k_stride, q, depth, at(r));
  if (r + 4 <= rows) {
    scores_rows<4>(vectors, k + r * k_stride, k_stride, q, depth, at(r));
    r += 4;
  }
  if (r + 2 <= rows) {
    scores_rows<2>(vectors, k + r * k_stride, k_stride, q, depth, at(r));
    r += 2;
  }
  if (r < rows) scores_rows<1>(vectors, k + r * k_stride, k_stride, q, depth, at(r));
}

// Keys [begin, end) of a block, of which only vectors [first, last) have a visible one.
struct Segment {
  tw_i64 begin;
  tw_i64 end;
  int first;
  int last;
};

// sum[r][v] += V[key][r] * P[key][v] for one segment; First and Last are its live vectors.
template <int R, int First, int Last, class T>
HWY_INLINE void accumulate_segment(const T* HWY_RESTRICT p, const T* HWY_RESTRICT v, tw_i64 v_stride, tw_i64 begin,
                                   tw_i64 end, Vec<T> (&sum)[R][tile_vectors]) {
  const Tag<T> d;
  for (tw_i64 key = begin; key < end; ++key) {
    Vec<T> weight[tile_vectors];
    TW_UNROLL
    for (int n = First; n < Last; ++n) weight[n] = hn::Load(d, p + key * tile_lanes<T> + n * lanes<T>);
    TW_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec<T> value = hn::Set(d, v[key * v_stride + r]);
      TW_UNROLL
      for (int n = First; n < Last; ++n) sum[r][n] = hn::MulAdd(value, weight[n], sum[r][n]);
    }
  }
}

// O[r][v] = alpha[v] * O[r][v] + sum over the segments' keys, for R value columns.
// p: [keys, tile_lanes] weights; v: [keys, v_stride]; o: [R, tile_lanes]; alpha: [tile_lanes].
template <int R, class T>
HWY_NOINLINE void accumulate_panel(const T* HWY_RESTRICT p, const T* HWY_RESTRICT v, tw_i64 v_stride,
                                   const Segment* segments, int count, const T* HWY_RESTRICT alpha, T* HWY_RESTRICT o) {
  const Tag<T> d;
  Vec<T> sum[R][tile_vectors];
  TW_UNROLL
  for (int r = 0; r < R; ++r) {
    TW_UNROLL
    for (int n = 0; n < tile_vectors; ++n) sum[r][n] = hn::Zero(d);
  }
  for (int i = 0; i < count; ++i) {
    const Segment segment = segments[i];
    const auto run = [&]<int First, int Last>() HWY_ATTR {
      accumulate_segment<R, First, Last>(p, v, v_stride, segment.begin, segment.end, sum);
    };
    switch (segment.first * 8 + segment.last) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
      case 0 * 8 + 3: run.template operator()<0, 3>(); break;
      case 0 * 8 + 4: run.template operator()<0, 4>(); break;
      case 1 * 8 + 3: run.template operator()<1, 3>(); break;
      case 1 * 8 + 4: run.template operator()<1, 4>(); break;
      case 2 * 8 + 3: run.template operator()<2, 3>(); break;
      case 2 * 8 + 4: run.template operator()<2, 4>(); break;
      case 3 * 8 + 4: run.template operator()<3, 4>(); break;
#endif
      case 0 * 8 + 1: run.template operator()<0, 1>(); break;
      case 0 * 8 + 2: run.template operator()<0, 2>(); break;
      case 1 * 8 + 2: run.template operator()<1, 2>(); break;
      default: break;
    }
  }
  TW_UNROLL
  for (int n = 0; n < tile_vectors; ++n) {
    const Vec<T> shrink = hn::Load(d, alpha + n * lanes<T>);
    TW_UNROLL
    for (int r = 0; r < R; ++r) {
      T* const row = o + r * tile_lanes<T> + n * lanes<T>;
      hn::Store(hn::MulAdd(shrink, hn::Load(d, row), sum[r][n]), d, row);
    }
  }
}

// The same for any number of value columns.
template <class T>
HWY_INLINE void accumulate_block(tw_i64 columns, const T* p, const T* v, tw_i64 v_stride, const Segment* segments,
                                 int count, const T* alpha, T* o) {
  tw_i64 c = 0;
  const auto at = [&](tw_i64 column) { return o + column * tile_lanes<T>; };
  for (; c + 6 <= columns; c += 6) accumulate_panel<6>(p, v + c, v_stride, segments, count, alpha, at(c));
  if (c + 4 <= columns) {
    accumulate_panel<4>(p, v + c, v_stride, segments, count, alpha, at(c));
    c += 4;
  }
  if (c + 2 <= columns) {
    accumulate_panel<2>(p, v + c, v_stride, segments, count, alpha, at(c));
    c += 2;
  }
  if (c < columns) accumulate_panel<1>(p, v + c, v_stride, segments, count, alpha, at(c));
}

// accumulate_block by selection, for values that may be infinite or NaN where they are invisible: lanes whose `seen`
// [keys, tile_lanes] is 0 keep their sum. The same bits as accumulate_block where everything is finite.
template <class T>
HWY_NOINLINE void accumulate_block_by_selection(tw_i64 columns, int vectors, tw_i64 begin, tw_i64 end, const T* p,
                                                const T* seen, const T* v, tw_i64 v_stride, const T* alpha, T* o) {
  const Tag<T> d;
  for (tw_i64 c = 0; c < columns; ++c) {
    Vec<T> sum[tile_vectors];
    TW_UNROLL
    for (int n = 0; n < tile_vectors; ++n) sum[n] = hn::Zero(d);
    for (tw_i64 key = begin; key < end; ++key) {
      const Vec<T> value = hn::Set(d, v[key * v_stride + c]);
      TW_UNROLL
      for (int n = 0; n < tile_vectors; ++n) {
        const tw_i64 at = key * tile_lanes<T> + n * lanes<T>;
        if (n >= vectors) continue;
        const auto invisible = hn::Eq(hn::Load(d, seen + at), hn::Zero(d));
        sum[n] = hn::IfThenElse(invisible, sum[n], hn::MulAdd(value, hn::Load(d, p + at), sum[n]));
      }
    }
    TW_UNROLL
    for (int n = 0; n < tile_vectors; ++n) {
      T* const row = o + c * tile_lanes<T> + n * lanes<T>;
      hn::Store(hn::MulAdd(hn::Load(d, alpha + n * lanes<T>), hn::Load(d, row), sum[n]), d, row);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
