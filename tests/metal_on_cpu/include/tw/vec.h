// vec<T, 2..4> with MSL's constructors, broadcasts, swizzles and component-wise operators.
#ifndef TW_VEC_H
#define TW_VEC_H

#include "tw/types.h"

namespace metal {

template <class T, int N>
struct vec;

constexpr int components_up_to(int i) { return i + 1; }
template <class... Rest>
constexpr int components_up_to(int i, int j, Rest... rest) {
  return components_up_to(i > j ? i : j, rest...);
}

// A view of some components inside a vec's union: reads as V, and can be assigned. It is no larger than it must be, so
// that the union has the size of its vec.
template <class V, class T, int... I>
struct swizzle {
  T data[components_up_to(I...)];
  operator V() const { return V(data[I]...); }
  swizzle& operator=(const V& v) {
    int i = 0;
    ((data[I] = v[i++]), ...);
    return *this;
  }
  swizzle& operator=(const swizzle& s) { return *this = V(s); }
  swizzle& operator+=(const V& v) { return *this = V(*this) + v; }
  swizzle& operator-=(const V& v) { return *this = V(*this) - v; }
  swizzle& operator*=(const V& v) { return *this = V(*this) * v; }
  T operator[](int i) const { return V(*this)[i]; }
};

#define TW_SW2(a, ia, b, ib) swizzle<vec<T, 2>, T, ia, ib> a##b;
#define TW_SW3(a, ia, b, ib, c, ic) swizzle<vec<T, 3>, T, ia, ib, ic> a##b##c;
#define TW_SW4(a, ia, b, ib, c, ic, d, id) swizzle<vec<T, 4>, T, ia, ib, ic, id> a##b##c##d;
#define TW_ROW2(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1)
#define TW_ROW3(M, ...) TW_ROW2(M, __VA_ARGS__) M(__VA_ARGS__, z, 2)
#define TW_ROW4(M, ...) TW_ROW3(M, __VA_ARGS__) M(__VA_ARGS__, w, 3)
#define TW_PAIRS4 TW_ROW4(TW_SW2, x, 0) TW_ROW4(TW_SW2, y, 1) TW_ROW4(TW_SW2, z, 2) TW_ROW4(TW_SW2, w, 3)
#define TW_PAIRS3 TW_ROW3(TW_SW2, x, 0) TW_ROW3(TW_SW2, y, 1) TW_ROW3(TW_SW2, z, 2)
#define TW_PAIRS2 TW_ROW2(TW_SW2, x, 0) TW_ROW2(TW_SW2, y, 1)
// clang-format off
#define TW_TRIPLES                                                                                    \
  TW_SW3(x, 0, y, 1, z, 2) TW_SW3(y, 1, z, 2, x, 0) TW_SW3(z, 2, x, 0, y, 1) TW_SW3(z, 2, y, 1, x, 0) \
  TW_SW3(x, 0, x, 0, x, 0) TW_SW3(y, 1, y, 1, y, 1) TW_SW3(z, 2, z, 2, z, 2)
#define TW_QUADS                                                                                 \
  TW_SW4(x, 0, y, 1, z, 2, w, 3) TW_SW4(w, 3, z, 2, y, 1, x, 0) TW_SW4(y, 1, x, 0, w, 3, z, 2)   \
  TW_SW4(z, 2, w, 3, x, 0, y, 1) TW_SW4(x, 0, z, 2, y, 1, w, 3) TW_SW4(y, 1, z, 2, w, 3, x, 0)   \
  TW_SW4(x, 0, x, 0, x, 0, x, 0) TW_SW4(y, 1, y, 1, y, 1, y, 1) TW_SW4(z, 2, z, 2, z, 2, z, 2)   \
  TW_SW4(w, 3, w, 3, w, 3, w, 3) TW_SW4(x, 0, y, 1, x, 0, y, 1) TW_SW4(z, 2, w, 3, z, 2, w, 3)
// clang-format on

#define TW_BINARY(op)                                   \
  friend TW_INLINE vec operator op(vec a, vec b) {      \
    vec r;                                              \
    for (int i = 0; i < size; ++i) r[i] = a[i] op b[i]; \
    return r;                                           \
  }
#define TW_COMPOUND(op)                                             \
  TW_INLINE vec& operator op##=(vec b) {                            \
    for (int i = 0; i < size; ++i) (*this)[i] = (*this)[i] op b[i]; \
    return *this;                                                   \
  }
#define TW_COMPARE(op)                                         \
  friend TW_INLINE vec<bool, size> operator op(vec a, vec b) { \
    vec<bool, size> r;                                         \
    for (int i = 0; i < size; ++i) r[i] = a[i] op b[i];        \
    return r;                                                  \
  }
#define TW_UNARY(op)                               \
  friend TW_INLINE vec operator op(vec a) {        \
    vec r;                                         \
    for (int i = 0; i < size; ++i) r[i] = op a[i]; \
    return r;                                      \
  }

#ifdef TW_COUNTING
// A product of vectors that is still to become `size` multiplications or `size` fused multiply-adds.
template <class V>
struct VecProduct {
  V a, b;
};
template <class T, int N, bool counted = std::is_same<T, tw::Float>::value>
struct product_of {
  typedef vec<T, N> type;
};
template <class T, int N>
struct product_of<T, N, true> {
  typedef VecProduct<vec<T, N>> type;
};
template <class V, class P>
using if_vec_product = typename std::enable_if<std::is_same<P, VecProduct<V>>::value, V>::type;
#define TW_MULTIPLY                                                                                                   \
  template <class U, class = typename std::enable_if<std::is_same<T, tw::Float>::value &&                             \
                                                     (std::is_arithmetic<U>::value || std::is_same<U, half>::value || \
                                                      std::is_same<U, tw::Product>::value)>::type>                    \
  TW_INLINE vec(U s) : vec(T(s)) {}                                                                                   \
  vec(VecProduct<vec> p) {                                                                                            \
    for (int i = 0; i < size; ++i) (*this)[i] = p.a[i] * p.b[i];                                                      \
  }                                                                                                                   \
  friend TW_INLINE typename product_of<T, size>::type operator*(vec a, vec b) {                                       \
    if constexpr (std::is_same<T, tw::Float>::value) {                                                                \
      return {a, b};                                                                                                  \
    } else {                                                                                                          \
      vec r;                                                                                                          \
      for (int i = 0; i < size; ++i) r[i] = a[i] * b[i];                                                              \
      return r;                                                                                                       \
    }                                                                                                                 \
  }                                                                                                                   \
  template <class P>                                                                                                  \
  friend TW_INLINE if_vec_product<vec, P> operator+(P p, vec c) {                                                     \
    vec r;                                                                                                            \
    for (int i = 0; i < size; ++i) r[i] = p.a[i] * p.b[i] + c[i];                                                     \
    return r;                                                                                                         \
  }                                                                                                                   \
  template <class P>                                                                                                  \
  friend TW_INLINE if_vec_product<vec, P> operator+(vec c, P p) {                                                     \
    return p + c;                                                                                                     \
  }                                                                                                                   \
  template <class P>                                                                                                  \
  friend TW_INLINE if_vec_product<vec, P> operator-(P p, vec c) {                                                     \
    vec r;                                                                                                            \
    for (int i = 0; i < size; ++i) r[i] = p.a[i] * p.b[i] - c[i];                                                     \
    return r;                                                                                                         \
  }                                                                                                                   \
  template <class P>                                                                                                  \
  friend TW_INLINE if_vec_product<vec, P> operator-(vec c, P p) {                                                     \
    vec r;                                                                                                            \
    for (int i = 0; i < size; ++i) r[i] = c[i] - p.a[i] * p.b[i];                                                     \
    return r;                                                                                                         \
  }                                                                                                                   \
  template <class P>                                                                                                  \
  TW_INLINE if_vec_product<vec, P>& operator+=(P p) {                                                                 \
    return *this = p + *this;                                                                                         \
  }                                                                                                                   \
  TW_INLINE vec& operator*=(vec b) {                                                                                  \
    for (int i = 0; i < size; ++i) (*this)[i] = (*this)[i] * b[i];                                                    \
    return *this;                                                                                                     \
  }
#else
#define TW_MULTIPLY TW_BINARY(*) TW_COMPOUND(*)
#endif

#define TW_VEC_BODY                                                                                                    \
  TW_MULTIPLY TW_BINARY(+) TW_BINARY(-) TW_BINARY(/) TW_BINARY(%) TW_BINARY(&) TW_BINARY(|) TW_BINARY(^) TW_BINARY(<<) \
      TW_BINARY(>>) TW_COMPOUND(+) TW_COMPOUND(-) TW_COMPOUND(/) TW_COMPOUND(%) TW_COMPOUND(&) TW_COMPOUND(|)          \
          TW_COMPOUND(^) TW_COMPOUND(<<) TW_COMPOUND(>>) TW_COMPARE(<) TW_COMPARE(<=) TW_COMPARE(>) TW_COMPARE(>=)     \
              TW_COMPARE(==) TW_COMPARE(!=) TW_COMPARE(&&) TW_COMPARE(||) TW_UNARY(-) TW_UNARY(~) TW_UNARY(!)          \
                  TW_INLINE T& operator[](int i) {                                                                     \
    return data[i];                                                                                                    \
  }                                                                                                                    \
  TW_INLINE const T& operator[](int i) const { return data[i]; }                                                       \
  vec() = default;                                                                                                     \
  vec(const vec&) = default;                                                                                           \
  TW_INLINE vec& operator=(const vec& v) { /* not defaulted: swizzles in the union assign by component */              \
    for (int i = 0; i < size; ++i) data[i] = v.data[i];                                                                \
    return *this;                                                                                                      \
  }                                                                                                                    \
  TW_INLINE vec(T s) {                                                                                                 \
    for (int i = 0; i < size; ++i) data[i] = s;                                                                        \
  }                                                                                                                    \
  template <class U, class = typename std::enable_if<!std::is_same<U, T>::value>::type>                                \
  TW_INLINE explicit vec(vec<U, size> v) {                                                                             \
    for (int i = 0; i < size; ++i) data[i] = static_cast<T>(v[i]);                                                     \
  }

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  enum { size = 2 };
  union {
    T data[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
    TW_PAIRS2
  };
  TW_VEC_BODY
  TW_INLINE vec(T a, T b) : data{a, b} {}
};
static_assert(sizeof(vec<float, 2>) == 8 && sizeof(vec<short, 2>) == 4, "vectors have their size in memory");

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  enum { size = 3 };
  union {
    T data[3];
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
    TW_PAIRS3 TW_TRIPLES
  };
  TW_VEC_BODY
  TW_INLINE vec(T a, T b, T c) : data{a, b, c} {}
  TW_INLINE vec(vec<T, 2> a, T b) : data{a.x, a.y, b} {}
  TW_INLINE vec(T a, vec<T, 2> b) : data{a, b.x, b.y} {}
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  enum { size = 4 };
  union {
    T data[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
    TW_PAIRS4 TW_TRIPLES TW_QUADS
  };
  TW_VEC_BODY
  TW_INLINE vec(T i, T j, T k, T l) : data{i, j, k, l} {}
  TW_INLINE vec(vec<T, 2> i, vec<T, 2> j) : data{i.x, i.y, j.x, j.y} {}
  TW_INLINE vec(vec<T, 2> i, T j, T k) : data{i.x, i.y, j, k} {}
  TW_INLINE vec(T i, vec<T, 2> j, T k) : data{i, j.x, j.y, k} {}
  TW_INLINE vec(T i, T j, vec<T, 2> k) : data{i, j, k.x, k.y} {}
  TW_INLINE vec(vec<T, 3> i, T j) : data{i.x, i.y, i.z, j} {}
  TW_INLINE vec(T i, vec<T, 3> j) : data{i, j.x, j.y, j.z} {}
};

#define TW_VEC_NAMES(T, name) \
  typedef vec<T, 2> name##2;  \
  typedef vec<T, 3> name##3;  \
  typedef vec<T, 4> name##4;
TW_VEC_NAMES(tw_float, float)
TW_VEC_NAMES(half, half)
TW_VEC_NAMES(::bfloat, bfloat)
TW_VEC_NAMES(bool, bool)
TW_VEC_NAMES(char, char)
TW_VEC_NAMES(uchar, uchar)
TW_VEC_NAMES(short, short)
TW_VEC_NAMES(ushort, ushort)
TW_VEC_NAMES(int, int)
TW_VEC_NAMES(uint, uint)
TW_VEC_NAMES(long, long)
TW_VEC_NAMES(ulong, ulong)

}  // namespace metal

#endif
