// MSL's math, common, integer and relational functions on float, half, integers and their vectors. The CPU's results
// are correctly rounded more often than a GPU's: tests must leave 1 to 2 ulp.
#ifndef TW_MATH_H
#define TW_MATH_H

#include "tw/vec.h"

#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define HALF_MAX half(65504.0f)
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX (__INT_MAX__ * 2u + 1u)
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT __FLT_MAX__
#define M_PI_F 3.14159265358979323846f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f

namespace metal {

using std::conditional_t;
using std::enable_if;
using std::enable_if_t;
using std::integral_constant;
using std::is_floating_point;
using std::is_same;
using std::is_same_v;
using std::remove_reference_t;

template <class To, class From>
TW_INLINE To as_type(From x) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
  To result;
  __builtin_memcpy(&result, &x, sizeof result);
  return result;
}

// Binary functions of which one argument or both are swizzles.
#define TW_SWIZZLED_2(name)                                                         \
  template <class V, class T, int... I>                                             \
  TW_INLINE auto name(const swizzle<V, T, I...>& v, const V& w) {                   \
    return name(V(v), w);                                                           \
  }                                                                                 \
  template <class V, class T, int... I>                                             \
  TW_INLINE auto name(const V& v, const swizzle<V, T, I...>& w) {                   \
    return name(v, V(w));                                                           \
  }                                                                                 \
  template <class V, class T, int... I, int... J>                                   \
  TW_INLINE auto name(const swizzle<V, T, I...>& v, const swizzle<V, T, J...>& w) { \
    return name(V(v), V(w));                                                        \
  }

// f(float) -> float on raw values; the counter says what one evaluation costs.
#define TW_FLOAT_1(name, expression, counter)      \
  TW_INLINE tw_float name(tw_float x_) {           \
    counter;                                       \
    const float x = tw::raw(x_);                   \
    return tw_float(expression);                   \
  }                                                \
  TW_INLINE half name(half h) {                    \
    const float x = static_cast<float>(h);         \
    return static_cast<half>(expression);          \
  }                                                \
  template <class T, int N>                        \
  TW_INLINE vec<T, N> name(vec<T, N> v) {          \
    vec<T, N> r;                                   \
    for (int i = 0; i < N; ++i) r[i] = name(v[i]); \
    return r;                                      \
  }                                                \
  template <class V, class T, int... I>            \
  TW_INLINE V name(const swizzle<V, T, I...>& v) { \
    return name(V(v));                             \
  }
#define TW_FLOAT_2(name, expression, counter)                           \
  TW_INLINE tw_float name(tw_float x_, tw_float y_) {                   \
    counter;                                                            \
    const float x = tw::raw(x_), y = tw::raw(y_);                       \
    return tw_float(expression);                                        \
  }                                                                     \
  TW_INLINE half name(half x_, half y_) {                               \
    const float x = static_cast<float>(x_), y = static_cast<float>(y_); \
    return static_cast<half>(expression);                               \
  }                                                                     \
  template <class T, int N>                                             \
  TW_INLINE vec<T, N> name(vec<T, N> v, vec<T, N> w) {                  \
    vec<T, N> r;                                                        \
    for (int i = 0; i < N; ++i) r[i] = name(v[i], w[i]);                \
    return r;                                                           \
  }                                                                     \
  template <class T, int N>                                             \
  TW_INLINE vec<T, N> name(vec<T, N> v, T w) {                          \
    return name(v, vec<T, N>(w));                                       \
  }                                                                     \
  TW_SWIZZLED_2(name)

TW_FLOAT_1(exp, __builtin_expf(x), TW_COUNT(exponential))
TW_FLOAT_1(exp2, __builtin_exp2f(x), TW_COUNT(exponential))
TW_FLOAT_1(exp10, __builtin_exp2f(x * 3.32192809488736234787f), TW_COUNT(exponential))
TW_FLOAT_1(log, __builtin_logf(x), TW_COUNT(special))
TW_FLOAT_1(log2, __builtin_log2f(x), TW_COUNT(special))
TW_FLOAT_1(log10, __builtin_log10f(x), TW_COUNT(special))
TW_FLOAT_1(sqrt, __builtin_sqrtf(x), TW_COUNT(special))
TW_FLOAT_1(rsqrt, 1.0f / __builtin_sqrtf(x), TW_COUNT(special))
TW_FLOAT_1(tanh, __builtin_tanhf(x), TW_COUNT(special))
TW_FLOAT_1(sinh, __builtin_sinhf(x), TW_COUNT(special))
TW_FLOAT_1(cosh, __builtin_coshf(x), TW_COUNT(special))
TW_FLOAT_1(sin, __builtin_sinf(x), TW_COUNT(special))
TW_FLOAT_1(cos, __builtin_cosf(x), TW_COUNT(special))
TW_FLOAT_1(floor, __builtin_floorf(x), TW_COUNT(special))
TW_FLOAT_1(ceil, __builtin_ceilf(x), TW_COUNT(special))
TW_FLOAT_1(round, __builtin_roundf(x), TW_COUNT(special))
TW_FLOAT_1(rint, __builtin_rintf(x), TW_COUNT(special))
TW_FLOAT_1(trunc, __builtin_truncf(x), TW_COUNT(special))
TW_FLOAT_1(fabs, __builtin_fabsf(x), (void)0)
TW_FLOAT_1(sign, (x > 0 ? 1.0f : x < 0 ? -1.0f : x), TW_COUNT(compare))
TW_FLOAT_2(pow, __builtin_powf(x, y), TW_COUNT(special))
TW_FLOAT_2(fmod, __builtin_fmodf(x, y), TW_COUNT(special))
TW_FLOAT_2(copysign, __builtin_copysignf(x, y), TW_COUNT(special))
TW_FLOAT_2(fmax, __builtin_fmaxf(x, y),
           TW_COUNT(compare))  // drops a NaN when the other argument is a number, as on the GPU
TW_FLOAT_2(fmin, __builtin_fminf(x, y), TW_COUNT(compare))

// max, min, abs and clamp exist for integers too; arguments of different types are ambiguous, as in MSL.
TW_FLOAT_1(abs, __builtin_fabsf(x), (void)0)
TW_FLOAT_2(max, __builtin_fmaxf(x, y), TW_COUNT(compare))
TW_FLOAT_2(min, __builtin_fminf(x, y), TW_COUNT(compare))
#define TW_INTEGER(T)                                                                               \
  TW_INLINE constexpr T max(T x, T y) { return x < y ? y : x; }                                     \
  TW_INLINE constexpr T min(T x, T y) { return y < x ? y : x; }                                     \
  TW_INLINE constexpr T clamp(T x, T low, T high) { return x < low ? low : (high < x ? high : x); } \
  TW_INLINE constexpr T abs(T x) { return x < T(0) ? T(T(0) - x) : x; }
TW_INTEGER(char)
TW_INTEGER(uchar)
TW_INTEGER(short)
TW_INTEGER(ushort)
TW_INTEGER(int)
TW_INTEGER(uint)
TW_INTEGER(long)
TW_INTEGER(ulong)
#undef TW_INTEGER
TW_INLINE tw_float clamp(tw_float x, tw_float low, tw_float high) { return min(max(x, low), high); }
TW_INLINE half clamp(half x, half low, half high) { return min(max(x, low), high); }

TW_INLINE tw_float fma(tw_float a, tw_float b, tw_float c) {
  TW_COUNT(fma);
  return tw_float(__builtin_fmaf(tw::raw(a), tw::raw(b), tw::raw(c)));
}
TW_INLINE half fma(half a, half b, half c) {
  return static_cast<half>(__builtin_fmaf(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)));
}
template <class T, int N>
TW_INLINE vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  vec<T, N> r;
  for (int i = 0; i < N; ++i) r[i] = fma(a[i], b[i], c[i]);
  return r;
}
template <class T, int N>
TW_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T r = a[0] * b[0];
  for (int i = 1; i < N; ++i) r = a[i] * b[i] + r;
  return r;
}
TW_SWIZZLED_2(dot)

// select(a, b, c): c ? b : a.
template <class T>
TW_INLINE T select(T a, T b, bool c) {
  return c ? b : a;
}
template <class T, int N>
TW_INLINE vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
  vec<T, N> r;
  for (int i = 0; i < N; ++i) r[i] = c[i] ? b[i] : a[i];
  return r;
}

TW_INLINE bool isnan(tw_float x) { return __builtin_isnan(tw::raw(x)); }
TW_INLINE bool isinf(tw_float x) { return __builtin_isinf(tw::raw(x)); }
TW_INLINE bool isfinite(tw_float x) { return __builtin_isfinite(tw::raw(x)); }
template <int N>
TW_INLINE bool any(vec<bool, N> v) {
  bool r = false;
  for (int i = 0; i < N; ++i) r = r || v[i];
  return r;
}
template <int N>
TW_INLINE bool all(vec<bool, N> v) {
  bool r = true;
  for (int i = 0; i < N; ++i) r = r && v[i];
  return r;
}
TW_INLINE tw_float ldexp(tw_float x, int e) {
  TW_COUNT(special);
  return tw_float(__builtin_ldexpf(tw::raw(x), e));
}
TW_INLINE uint popcount(uint x) { return static_cast<uint>(__builtin_popcount(x)); }
TW_INLINE uint clz(uint x) { return x == 0 ? 32u : static_cast<uint>(__builtin_clz(x)); }
TW_INLINE uint ctz(uint x) { return x == 0 ? 32u : static_cast<uint>(__builtin_ctz(x)); }
TW_INLINE uint mulhi(uint a, uint b) { return static_cast<uint>((static_cast<ulong>(a) * b) >> 32); }
TW_INLINE ulong mulhi(ulong a, ulong b) { return static_cast<ulong>((static_cast<unsigned __int128>(a) * b) >> 64); }

// The bench has one precision for all three.
#define TW_PRECISIONS \
  using metal::abs;   \
  using metal::ceil;  \
  using metal::clamp; \
  using metal::cos;   \
  using metal::exp;   \
  using metal::exp10; \
  using metal::exp2;  \
  using metal::fabs;  \
  using metal::floor; \
  using metal::fma;   \
  using metal::fmax;  \
  using metal::fmin;  \
  using metal::fmod;  \
  using metal::log;   \
  using metal::log10; \
  using metal::log2;  \
  using metal::max;   \
  using metal::min;   \
  using metal::pow;   \
  using metal::rint;  \
  using metal::round; \
  using metal::rsqrt; \
  using metal::sign;  \
  using metal::sin;   \
  using metal::sqrt;  \
  using metal::tanh;  \
  using metal::trunc;
namespace fast {
TW_PRECISIONS
TW_FLOAT_2(divide, x / y, TW_COUNT(divide))
}  // namespace fast
namespace precise {
TW_PRECISIONS
TW_FLOAT_2(divide, x / y, TW_COUNT(divide))
}  // namespace precise
#undef TW_PRECISIONS

template <class T>
struct numeric_limits;
#define TW_INTEGER_LIMITS(T, lo, hi)           \
  template <>                                  \
  struct numeric_limits<T> {                   \
    static constexpr T max() { return hi; }    \
    static constexpr T min() { return lo; }    \
    static constexpr T lowest() { return lo; } \
  };
TW_INTEGER_LIMITS(int, INT_MIN, INT_MAX)
TW_INTEGER_LIMITS(uint, 0u, UINT_MAX)
TW_INTEGER_LIMITS(short, -32768, 32767)
TW_INTEGER_LIMITS(ushort, 0, 65535)
TW_INTEGER_LIMITS(long, -__LONG_MAX__ - 1, __LONG_MAX__)
TW_INTEGER_LIMITS(ulong, 0ul, __LONG_MAX__ * 2ul + 1ul)
#undef TW_INTEGER_LIMITS
template <>
struct numeric_limits<tw_float> {
  static constexpr tw_float max() { return tw_float(__FLT_MAX__); }
  static constexpr tw_float min() { return tw_float(__FLT_MIN__); }
  static constexpr tw_float lowest() { return tw_float(-__FLT_MAX__); }
  static constexpr tw_float infinity() { return tw_float(__builtin_inff()); }
  static constexpr tw_float quiet_NaN() { return tw_float(__builtin_nanf("")); }
  static constexpr tw_float epsilon() { return tw_float(__FLT_EPSILON__); }
};
template <>
struct numeric_limits<half> {
  static constexpr half max() { return static_cast<half>(65504.0f); }
  static constexpr half lowest() { return static_cast<half>(-65504.0f); }
  static constexpr half infinity() { return static_cast<half>(__builtin_inff()); }
};

}  // namespace metal

#endif
