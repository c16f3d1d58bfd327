#pragma once

// Rows between memory (any dtype, any strides) and row-major scratch in the type that computes: widening, narrowing,
// gathering. Highway's own conversions to bfloat16 truncate and its SSE4 float16 conversions are wrong, so these are
// ours, held to kernel/float16.hpp value by value.

#include <cstring>

#include "cpu/ops_hwy-inl.h"
#include "kernel/float16.hpp"
#include "kernel/kernel.hpp"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

using Half = hn::Rebind<std::uint16_t, Tag<float>>;  // as many 16-bit lanes as a vector has floats

HWY_INLINE Vec<float> widen(const BFloat16* x) {
  const hn::RebindToUnsigned<Tag<float>> du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(Half(), reinterpret_cast<const std::uint16_t*>(x)));
  return hn::BitCast(Tag<float>(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE Vec<float> widen(const Float16* x) {
  const auto half = hn::LoadU(Half(), reinterpret_cast<const std::uint16_t*>(x));
#if HWY_TARGET == HWY_SSE4
  const Tag<float> d;
  const hn::RebindToUnsigned<Tag<float>> du;
  const auto bits = hn::PromoteTo(du, half);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  // Exponent and mantissa land in their places with a bias that is 112 too small: exact for subnormals, too.
  const auto scaled = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112F));
  const auto special = hn::VecFromMask(du, hn::Gt(magnitude, hn::Set(du, 0x7bffu)));  // infinities and NaN
  const auto exponent = hn::And(special, hn::Set(du, 0x7f800000u));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(du, scaled), exponent), sign));
#else
  return hn::PromoteTo(Tag<float>(), hn::BitCast(hn::Rebind<hwy::float16_t, Tag<float>>(), half));
#endif
}

HWY_INLINE void narrow(Vec<float> x, BFloat16* to) {
  const hn::RebindToUnsigned<Tag<float>> du;
  const hn::RebindToSigned<Tag<float>> di;
  const auto bits = hn::BitCast(du, x);
  const auto high = hn::ShiftRight<16>(bits);
  const auto to_even = hn::Add(hn::And(high, hn::Set(du, 1u)), hn::Set(du, 0x7fffu));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, to_even));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(x));
  const auto result = hn::IfThenElse(is_nan, hn::Or(high, hn::Set(du, 0x40u)), rounded);
  hn::StoreU(hn::DemoteTo(Half(), hn::BitCast(di, result)), Half(), reinterpret_cast<std::uint16_t*>(to));
}

HWY_INLINE void narrow(Vec<float> x, Float16* to) {
#if HWY_TARGET == HWY_SSE4
  HWY_ALIGN float values[lanes<float>];
  hn::Store(x, Tag<float>(), values);
  for (int i = 0; i < lanes<float>; ++i) to[i] = to_float16(values[i]);
#else
  const hn::Rebind<hwy::float16_t, Tag<float>> dh;
  hn::StoreU(hn::BitCast(Half(), hn::DemoteTo(dh, x)), Half(), reinterpret_cast<std::uint16_t*>(to));
#endif
}

HWY_INLINE float widen_one(Float16 x) { return to_float(x); }
HWY_INLINE float widen_one(BFloat16 x) { return to_float(x); }
HWY_INLINE float widen_one(float x) { return x; }
HWY_INLINE double widen_one(double x) { return x; }
HWY_INLINE float widen_one(bool x) { return x ? 1.0F : 0.0F; }

template <class Stored>
inline constexpr bool is_half = sizeof(Stored) == 2;

// A rectangle of a tensor: element (r, c) is data[r * row + c * column].
struct Rectangle {
  const void* data;
  DType dtype;
  tw_i64 row;
  tw_i64 column;
};

template <class Stored>
HWY_INLINE const Stored* elements(Rectangle from) {
  return static_cast<const Stored*>(from.data);
}

template <class Stored, class T>
HWY_INLINE void load_rows_as(Rectangle from, tw_i64 rows, tw_i64 columns, T* HWY_RESTRICT to, tw_i64 to_row) {
  for (tw_i64 r = 0; r < rows; ++r) {
    const Stored* const source = elements<Stored>(from) + r * from.row;
    T* const target = to + r * to_row;
    tw_i64 c = 0;
    if constexpr (is_half<Stored>) {
      if (from.column == 1) {
        for (; c + lanes<T> <= columns; c += lanes<T>) hn::StoreU(widen(source + c), Tag<T>(), target + c);
      }
    }
    for (; c < columns; ++c) target[c] = static_cast<T>(widen_one(source[c * from.column]));
  }
}

// to[r][c] = from(r, c), rows of `to` being to_row elements apart. Booleans become 1 and 0.
template <class T>
HWY_NOINLINE void load_rows(Rectangle from, tw_i64 rows, tw_i64 columns, T* HWY_RESTRICT to, tw_i64 to_row) {
  if constexpr (sizeof(T) == 4) {
    if (from.dtype == DType::float16) return load_rows_as<Float16>(from, rows, columns, to, to_row);
    if (from.dtype == DType::bfloat16) return load_rows_as<BFloat16>(from, rows, columns, to, to_row);
  } else {
    if (from.dtype == DType::float64) return load_rows_as<double>(from, rows, columns, to, to_row);
  }
  if (from.dtype == DType::boolean) {  // any non-zero byte is true, so the bytes are read as numbers
    for (tw_i64 r = 0; r < rows; ++r) {
      const auto* const source = elements<std::uint8_t>(from) + r * from.row;
      T* const target = to + r * to_row;
      if (from.column == 1) {
        for (tw_i64 c = 0; c < columns; ++c) target[c] = source[c] != 0 ? T(1) : T(0);
      } else {
        for (tw_i64 c = 0; c < columns; ++c) target[c] = source[c * from.column] != 0 ? T(1) : T(0);
      }
    }
    return;
  }
  load_rows_as<float>(from, rows, columns, to, to_row);
}

// The same for a tensor that is written.
struct Target {
  void* data;
  DType dtype;
  tw_i64 row;
  tw_i64 column;
};

template <class Stored, class T>
HWY_INLINE void store_row_as(const T* HWY_RESTRICT from, tw_i64 columns, Stored* to, tw_i64 step) {
  tw_i64 c = 0;
  if constexpr (is_half<Stored>) {
    if (step == 1) {
      for (; c + lanes<T> <= columns; c += lanes<T>) narrow(hn::LoadU(Tag<T>(), from + c), to + c);
    }
    for (; c < columns; ++c) {
      if constexpr (std::is_same_v<Stored, Float16>) to[c * step] = to_float16(from[c]);
      if constexpr (std::is_same_v<Stored, BFloat16>) to[c * step] = to_bfloat16(from[c]);
    }
  } else {
    for (; c < columns; ++c) to[c * step] = static_cast<Stored>(from[c]);
  }
}

template <class T>
HWY_NOINLINE void store_row(const T* HWY_RESTRICT from, tw_i64 columns, Target to, tw_i64 r) {
  if constexpr (sizeof(T) == 8) {
    store_row_as(from, columns, static_cast<double*>(to.data) + r * to.row, to.column);
  } else if (to.dtype == DType::float16) {
    store_row_as(from, columns, static_cast<Float16*>(to.data) + r * to.row, to.column);
  } else if (to.dtype == DType::bfloat16) {
    store_row_as(from, columns, static_cast<BFloat16*>(to.data) + r * to.row, to.column);
  } else {
    store_row_as(from, columns, static_cast<float*>(to.data) + r * to.row, to.column);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
