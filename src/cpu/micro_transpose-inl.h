#pragma once

// L x L transposes between row-major memory and vectors with queries in the lanes, from blocks of 128 bits.

#include "cpu/micro_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

template <class T>
inline constexpr int block_lanes = static_cast<int>(16 / sizeof(T));  // columns handled together

// 128-bit blocks of rows row(0), row(1), ... one above the other: block b of the result comes from src + b * step.
template <class T>
HWY_INLINE Vec<T> gather_blocks(const T* src, tw_i64 step) {
  const hn::FixedTag<T, 16 / sizeof(T)> d128;
#if HWY_MAX_BYTES == 16
  (void)step;
  return hn::LoadU(d128, src);
#else
  const hn::Twice<decltype(d128)> d256;
  const auto low = hn::Combine(d256, hn::LoadU(d128, src + step), hn::LoadU(d128, src));
#if HWY_MAX_BYTES == 32
  return low;
#else
  const auto high = hn::Combine(d256, hn::LoadU(d128, src + 3 * step), hn::LoadU(d128, src + 2 * step));
  return hn::Combine(Tag<T>(), high, low);
#endif
#endif
}

template <class T>
HWY_INLINE void scatter_blocks(Vec<T> x, T* dst, tw_i64 step) {
  const hn::FixedTag<T, 16 / sizeof(T)> d128;
#if HWY_MAX_BYTES == 16
  (void)step;
  hn::StoreU(x, d128, dst);
#else
#if HWY_MAX_BYTES == 32
  const auto low = x;
#else
  const hn::Twice<decltype(d128)> d256;
  const auto low = hn::LowerHalf(d256, x);
  const auto high = hn::UpperHalf(d256, x);
  hn::StoreU(hn::LowerHalf(d128, high), d128, dst + 2 * step);
  hn::StoreU(hn::UpperHalf(d128, high), d128, dst + 3 * step);
#endif
  hn::StoreU(hn::LowerHalf(d128, low), d128, dst);
  hn::StoreU(hn::UpperHalf(d128, low), d128, dst + step);
#endif
}

// Transposes the block_lanes x block_lanes matrices that lie in corresponding 128-bit blocks of the vectors.
HWY_INLINE void transpose_in_blocks(Vec<float> (&x)[4]) {
  const Tag<float> d;
  const Tag<double> dd;
  const auto pairs = [dd](Vec<float> v) HWY_ATTR { return hn::BitCast(dd, v); };
  const auto a = pairs(hn::InterleaveLower(d, x[0], x[1]));
  const auto b = pairs(hn::InterleaveLower(d, x[2], x[3]));
  const auto c = pairs(hn::InterleaveUpper(d, x[0], x[1]));
  const auto e = pairs(hn::InterleaveUpper(d, x[2], x[3]));
  x[0] = hn::BitCast(d, hn::InterleaveLower(dd, a, b));
  x[1] = hn::BitCast(d, hn::InterleaveUpper(dd, a, b));
  x[2] = hn::BitCast(d, hn::InterleaveLower(dd, c, e));
  x[3] = hn::BitCast(d, hn::InterleaveUpper(dd, c, e));
}

HWY_INLINE void transpose_in_blocks(Vec<double> (&x)[2]) {
  const Tag<double> d;
  const Vec<double> a = x[0];
  x[0] = hn::InterleaveLower(d, a, x[1]);
  x[1] = hn::InterleaveUpper(d, a, x[1]);
}

// dst[c][r] = src[r][c] for L rows and any number of columns. src rows are `stride` apart and contiguous; dst rows are
// tile_lanes apart and aligned.
template <class T>
HWY_INLINE void rows_to_lanes(const T* src, tw_i64 stride, tw_i64 columns, T* HWY_RESTRICT dst) {
  constexpr int B = block_lanes<T>;
  tw_i64 c = 0;
  for (; c + B <= columns; c += B) {
    Vec<T> x[B];
    TW_UNROLL
    for (int i = 0; i < B; ++i) x[i] = gather_blocks(src + i * stride + c, B * stride);
    transpose_in_blocks(x);
    TW_UNROLL
    for (int i = 0; i < B; ++i) hn::Store(x[i], Tag<T>(), dst + (c + i) * tile_lanes<T>);
  }
  for (; c < columns; ++c) {
    for (int r = 0; r < lanes<T>; ++r) dst[c * tile_lanes<T> + r] = src[r * stride + c];
  }
}

// dst[r][c] = src[c][r], the inverse.
template <class T>
HWY_INLINE void lanes_to_rows(const T* HWY_RESTRICT src, tw_i64 columns, T* dst, tw_i64 stride) {
  constexpr int B = block_lanes<T>;
  tw_i64 c = 0;
  for (; c + B <= columns; c += B) {
    Vec<T> x[B];
    TW_UNROLL
    for (int i = 0; i < B; ++i) x[i] = hn::Load(Tag<T>(), src + (c + i) * tile_lanes<T>);
    transpose_in_blocks(x);
    TW_UNROLL
    for (int i = 0; i < B; ++i) scatter_blocks(x[i], dst + i * stride + c, B * stride);
  }
  for (; c < columns; ++c) {
    for (int r = 0; r < lanes<T>; ++r) dst[r * stride + c] = src[c * tile_lanes<T> + r];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
