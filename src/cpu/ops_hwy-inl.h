#pragma once

// Ops<V> for Highway vectors of float and double: the vocabulary of core/row_softmax-inl.h and core/scores-inl.h, and
// those two headers on top of it, in the namespace of one instruction set. Included once per .cpp, after
// hwy_target-inl.h.

#include <cmath>
#include <limits>

#include "core/lang.h"
#include "cpu/hwy_target-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;  // a full vector of T
template <class T>
using Vec = hn::Vec<Tag<T>>;
template <class T>
inline constexpr int lanes = HWY_LANES(T);

// What exp2 needs to know about T. The polynomials are minimax in relative error with p(0) = 1 exactly:
// on [0, 1) float 8.2e-8, double 3.2e-18; on [-1/2, 1/2] float 9.2e-8, double 1.6e-17.
template <class T>
struct Exp2Table;
template <>
struct Exp2Table<float> {
  static constexpr int degree = 5;
  static constexpr float unit[] = {1.0F, 0.693151312F, 0.240164450F, 0.0557999134F, 0.00901702996F, 0.00186713021F};
  static constexpr float centred[] = {1.0F, 0.693146978F, 0.240222421F, 0.0555073374F, 0.00967151264F, 0.00132647291F};
  static constexpr int mantissa_bits = 23;
  // Powers are made 2^24 times too large, within the normal range, and the last product rounds them to where they
  // belong: a weight of 1e-40 is one, and makes an infinite value infinite.
  static constexpr float lowest_exponent = -151.0F;  // its exponent bits are 0, so that the result is exactly 0
  static constexpr float magic = 12582912.0F + 127.0F + 24.0F;  // 1.5 * 2^23 + bias: adding it leaves round(x) + bias
  static constexpr float shrink = 0x1p-24F;                     // in the low bits
};
template <>
struct Exp2Table<double> {
  static constexpr int degree = 11;
  static constexpr double unit[] = {1.0,
                                    0.69314718055994592842,
                                    0.24022650695906330204,
                                    0.055504108665602253297,
                                    0.0096181290995507955717,
                                    0.0013333558629566755226,
                                    0.00015403512309628660399,
                                    0.000015253175055562795993,
                                    1.3208367288951140366e-6,
                                    1.0253212435721934234e-7,
                                    6.559529322770528367e-9,
                                    6.2634661422960210149e-10};
  static constexpr double centred[] = {1.0,
                                       0.69314718055994530683,
                                       0.24022650695910113252,
                                       0.055504108664822063544,
                                       0.0096181291076008145131,
                                       0.0013333558146265941249,
                                       0.00015403530449124858448,
                                       0.000015252734004206437998,
                                       1.3215439095572680346e-6,
                                       1.017797935969253952e-7,
                                       7.073150575383163328e-9,
                                       4.4688895762855212184e-10};
  static constexpr int mantissa_bits = 52;
  static constexpr double lowest_exponent = -1076.0;
  static constexpr double magic = 6755399441055744.0 + 1023.0 + 53.0;
  static constexpr double shrink = 0x1p-53;
};

template <int degree, class V, class T>
HWY_INLINE V horner(V x, const T (&c)[degree + 1]) {
  const hn::DFromV<V> d;
  V p = hn::Set(d, c[degree]);
  TW_UNROLL
  for (int i = degree - 1; i >= 0; --i) p = hn::MulAdd(p, x, hn::Set(d, c[i]));
  return p;
}

template <class V>
struct Ops {
  using D = hn::DFromV<V>;
  using T = hn::TFromD<D>;

  static HWY_INLINE V set(T x) { return hn::Set(D(), x); }
  static HWY_INLINE V zero() { return hn::Zero(D()); }
  static HWY_INLINE V one() { return set(T(1)); }
  static HWY_INLINE V lowest() { return set(std::numeric_limits<T>::lowest()); }
  static HWY_INLINE V highest() { return set(std::numeric_limits<T>::max()); }
  static HWY_INLINE V minus_infinity() { return set(-std::numeric_limits<T>::infinity()); }
  static HWY_INLINE V log2_e() { return set(T(1.44269504088896340735992468100189214L)); }
  static HWY_INLINE V ln2() { return set(T(0.69314718055994530941723212145817657L)); }
  static HWY_INLINE V add(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE V sub(V a, V b) { return hn::Sub(a, b); }
  static HWY_INLINE V mul(V a, V b) { return hn::Mul(a, b); }
  static HWY_INLINE V div(V a, V b) { return hn::Div(a, b); }
  static HWY_INLINE V neg(V a) { return hn::Neg(a); }
  static HWY_INLINE V abs(V a) { return hn::Abs(a); }
  static HWY_INLINE V max(V a, V b) { return hn::Max(a, b); }  // with a NaN: either operand
  static HWY_INLINE V min(V a, V b) { return hn::Min(a, b); }
  static HWY_INLINE V select_equal(V a, V b, V yes, V no) { return hn::IfThenElse(hn::Eq(a, b), yes, no); }
  static HWY_INLINE V select_finite(V x, V yes, V no) { return hn::IfThenElse(hn::Le(hn::Abs(x), highest()), yes, no); }

  // -inf gives exactly 0, 0 exactly 1, NaN stays; results below the normal range are subnormal. x is at most 100.
  static HWY_INLINE V exp2(V x) {
    using Table = Exp2Table<T>;
#if HWY_TARGET == HWY_AVX3
    // reduce(-inf) is 0 and scalef floors its second operand: neither a clamp nor exponent bits are needed.
    if constexpr (sizeof(T) == 4) {
      const V fraction{_mm512_reduce_ps(x.raw, 1)};  // 1: x - floor(x)
      return V{_mm512_scalef_ps(horner<Table::degree>(fraction, Table::unit).raw, x.raw)};
    } else {
      const V fraction{_mm512_reduce_pd(x.raw, 1)};
      return V{_mm512_scalef_pd(horner<Table::degree>(fraction, Table::unit).raw, x.raw)};
    }
#else
    const V magic = set(Table::magic);
    const V clamped = max_or_nan(set(Table::lowest_exponent), x);
    const V shifted = hn::Add(clamped, magic);
    const V fraction = hn::Sub(clamped, hn::Sub(shifted, magic));
    const hn::RebindToUnsigned<D> du;
    const V power = hn::BitCast(D(), hn::ShiftLeft<Table::mantissa_bits>(hn::BitCast(du, shifted)));
    return hn::Mul(hn::Mul(horner<Table::degree>(fraction, Table::centred), power), set(Table::shrink));
#endif
  }

  // 0 gives -inf, NaN stays. Once per row and not per score: lane by lane through libm.
  static HWY_INLINE V log2(V x) {
    return by_lane(x, [](T y) { return std::log2(y); });
  }

  // Saturates at +-1; NaN stays.
  static HWY_INLINE V tanh(V x) {
    if constexpr (sizeof(T) == 8) {
      return by_lane(x, [](T y) { return std::tanh(y); });
    } else {
      // |x| <= 0.65: odd polynomial, relative error 1e-9 before rounding; beyond: 1 - 2 / (e^2|x| + 1).
      static constexpr float odd[] = {-0.33333333084F,  0.133332907458F,    -0.0539563493968F,
                                      0.0217461870891F, -0.00827245673259F, 0.0022149027425F};
      const V magnitude = hn::Abs(x);
      const V square = hn::Mul(x, x);
      const V small = hn::MulAdd(hn::Mul(horner<5>(square, odd), square), x, x);
      const V capped = hn::IfThenElse(hn::Gt(magnitude, set(T(20))), set(T(20)), magnitude);  // keeps NaN
      const V power = exp2(hn::Mul(capped, set(T(2.88539008177792681472L))));                 // 2 log2(e)
      const V large = hn::Sub(one(), hn::Div(set(T(2)), hn::Add(power, one())));
      return hn::IfThenElse(hn::Le(magnitude, set(T(0.65))), small, hn::CopySign(large, x));
    }
  }

 private:
  // The larger of a number and x; a NaN in x stays. x86 returns the second operand, NEON's vmaxnm would drop the NaN.
  static HWY_INLINE V max_or_nan(V low, V x) {
#if HWY_ARCH_X86
    return hn::Max(low, x);
#else
    return hn::IfThenElse(hn::Lt(x, low), low, x);
#endif
  }

  template <class F>
  static HWY_INLINE V by_lane(V x, F f) {
    HWY_ALIGN T values[lanes<T>];
    hn::Store(x, D(), values);
    for (T& value : values) value = f(value);
    return hn::Load(D(), values);
  }
};

// Not equal; NaN differs from everything (Highway's Ne says on x86 that it does not).
template <class V>
HWY_INLINE auto differs(V a, V b) {
  return hn::Not(hn::Eq(a, b));
}

#define TW_TARGET
#include "core/row_softmax-inl.h"
#include "core/scores-inl.h"
#undef TW_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
