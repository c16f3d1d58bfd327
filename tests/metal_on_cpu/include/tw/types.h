// Scalar types of MSL: half, bfloat, and in counting mode a float whose operations are counted.
#ifndef TW_TYPES_H
#define TW_TYPES_H

#include <type_traits>

#include "tw/abi.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef _Float16 half;

#define TW_INLINE inline __attribute__((always_inline))
// Code that works on the runner's behalf (argument blocks of other lanes): its accesses are not the kernel's.
#define TW_UNTRACED __attribute__((noinline, no_sanitize("thread", "undefined")))

#ifdef TW_COUNTING
extern "C" __attribute__((visibility("hidden"))) TwCounts tw_counts;
#define TW_COUNT(field)                                \
  do {                                                 \
    if (!__builtin_is_constant_evaluated()) {          \
      asm volatile("incq %0" : "+m"(tw_counts.field)); \
    }                                                  \
  } while (0)

namespace tw {

struct Product;

// 4 bytes, trivially copyable: the same type in memory and in registers. `a * b` is a Product until it is added to
// something (one fused multiply-add) or used otherwise (one multiplication): MSL contracts by default.
struct Float {
  float v;
  Float() = default;
  template <class T,
            class = typename std::enable_if<std::is_arithmetic<T>::value || std::is_same<T, half>::value>::type>
  constexpr Float(T x) : v(static_cast<float>(x)) {}
  constexpr Float(Product p);
  template <class T,
            class = typename std::enable_if<std::is_arithmetic<T>::value || std::is_same<T, half>::value>::type>
  constexpr explicit operator T() const {
    return static_cast<T>(v);
  }
  constexpr Float& operator+=(Float x);
  template <class P, class = typename std::enable_if<std::is_same<P, Product>::value>::type>
  constexpr Float& operator+=(P p);
  constexpr Float& operator-=(Float x);
  template <class P, class = typename std::enable_if<std::is_same<P, Product>::value>::type>
  constexpr Float& operator-=(P p);
  constexpr Float& operator*=(Float x);
  constexpr Float& operator/=(Float x);
};

struct Product {
  float a, b;
  bool is_value;  // a plain number that took this type in `condition ? x * y : 0.0f`
  constexpr Product(float x, float y) : a(x), b(y), is_value(false) {}
  constexpr Product(float x) : a(x), b(1), is_value(true) {}
};

template <class P>
using if_product = typename std::enable_if<std::is_same<P, Product>::value, Float>::type;

constexpr Float::Float(Product p) : v(p.a * p.b) {
  if (!p.is_value) TW_COUNT(mul);
}
constexpr Float fused(Product p, float c) {
  if (p.is_value) {
    TW_COUNT(add);
  } else {
    TW_COUNT(fma);
  }
  return Float(__builtin_fmaf(p.a, p.b, c));
}
constexpr Product operator*(Float a, Float b) { return Product(a.v, b.v); }
constexpr Float operator+(Float a, Float b) {
  TW_COUNT(add);
  return Float(a.v + b.v);
}
constexpr Float operator-(Float a, Float b) {
  TW_COUNT(add);
  return Float(a.v - b.v);
}
constexpr Float operator/(Float a, Float b) {
  TW_COUNT(divide);
  return Float(a.v / b.v);
}
constexpr Float operator-(Float a) { return Float(-a.v); }  // negation is a source modifier
constexpr Float operator+(Float a) { return a; }
template <class P>
constexpr if_product<P> operator+(P p, Float c) {
  return fused(p, c.v);
}
template <class P>
constexpr if_product<P> operator+(Float c, P p) {
  return fused(p, c.v);
}
template <class P>
constexpr if_product<P> operator-(P p, Float c) {
  return fused(p, -c.v);
}
template <class P>
constexpr if_product<P> operator-(Float c, P p) {
  return fused(Product{-p.a, p.b}, c.v);
}
template <class P, class R, class = if_product<R>>
constexpr if_product<P> operator+(P p, R r) {
  return fused(p, Float(r).v);
}
template <class P, class R, class = if_product<R>>
constexpr if_product<P> operator-(P p, R r) {
  return fused(p, -Float(r).v);
}
constexpr Float& Float::operator+=(Float x) { return *this = *this + x; }
constexpr Float& Float::operator-=(Float x) { return *this = *this - x; }
constexpr Float& Float::operator*=(Float x) { return *this = Float(*this * x); }
constexpr Float& Float::operator/=(Float x) { return *this = *this / x; }
template <class P, class>
constexpr Float& Float::operator+=(P p) {
  return *this = fused(p, v);
}
template <class P, class>
constexpr Float& Float::operator-=(P p) {
  return *this = fused(Product{-p.a, p.b}, v);
}

#define TW_COMPARISON(op)                        \
  constexpr bool operator op(Float a, Float b) { \
    TW_COUNT(compare);                           \
    return a.v op b.v;                           \
  }
TW_COMPARISON(<)
TW_COMPARISON(<=)
TW_COMPARISON(>)
TW_COMPARISON(>=)
TW_COMPARISON(==)
TW_COMPARISON(!=)
#undef TW_COMPARISON

}  // namespace tw
typedef tw::Float tw_float;
#else
#define TW_COUNT(field) ((void)0)
typedef float tw_float;
#endif

namespace tw {
TW_INLINE constexpr float raw(tw_float x) { return static_cast<float>(x); }
}  // namespace tw

// Rounds to nearest even and keeps NaN. Conversions are explicit both ways, which Apple's compiler accepts in any case.
struct bfloat {
  ushort bits;
  bfloat() = default;
  explicit bfloat(float x) {
    const uint u = __builtin_bit_cast(uint, x);
    bits = x != x ? ushort((u >> 16) | 0x40) : ushort((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
  explicit bfloat(int x) : bfloat(static_cast<float>(x)) {}
  explicit bfloat(half x) : bfloat(static_cast<float>(x)) {}
  explicit operator float() const { return __builtin_bit_cast(float, uint(bits) << 16); }
  explicit operator half() const { return static_cast<half>(static_cast<float>(*this)); }
#ifdef TW_COUNTING
  explicit bfloat(tw::Float x) : bfloat(x.v) {}
  explicit operator tw::Float() const { return tw::Float(static_cast<float>(*this)); }
#endif
  friend bfloat operator+(bfloat a, bfloat b) { return bfloat(static_cast<float>(a) + static_cast<float>(b)); }
  friend bfloat operator-(bfloat a, bfloat b) { return bfloat(static_cast<float>(a) - static_cast<float>(b)); }
  friend bfloat operator*(bfloat a, bfloat b) { return bfloat(static_cast<float>(a) * static_cast<float>(b)); }
  friend bfloat operator/(bfloat a, bfloat b) { return bfloat(static_cast<float>(a) / static_cast<float>(b)); }
  friend bfloat operator-(bfloat a) { return bfloat(-static_cast<float>(a)); }
  friend bool operator<(bfloat a, bfloat b) { return static_cast<float>(a) < static_cast<float>(b); }
  friend bool operator>(bfloat a, bfloat b) { return static_cast<float>(a) > static_cast<float>(b); }
  friend bool operator==(bfloat a, bfloat b) { return static_cast<float>(a) == static_cast<float>(b); }
  friend bool operator!=(bfloat a, bfloat b) { return static_cast<float>(a) != static_cast<float>(b); }
};

#endif
