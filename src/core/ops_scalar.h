#pragma once

// Ops<float> and Ops<double>: the vocabulary of row_softmax-inl.h and scores-inl.h on scalars, in plain C++.

#include <cmath>
#include <limits>

#include "core/lang.h"

namespace tilewise {
namespace core {
namespace scalar {

template <class T>
struct Ops {
  static T zero() { return T(0); }
  static T one() { return T(1); }
  static T lowest() { return std::numeric_limits<T>::lowest(); }
  static T highest() { return std::numeric_limits<T>::max(); }
  static T log2_e() { return T(1.44269504088896340735992468100189214L); }
  static T ln2() { return T(0.69314718055994530941723212145817657L); }
  static T add(T a, T b) { return a + b; }
  static T sub(T a, T b) { return a - b; }
  static T mul(T a, T b) { return a * b; }
  static T div(T a, T b) { return a / b; }
  static T neg(T a) { return -a; }
  static T abs(T a) { return std::fabs(a); }
  static T max(T a, T b) { return a > b ? a : b; }  // with a NaN: b; NaN travels through l and O, not through m
  static T min(T a, T b) { return a < b ? a : b; }
  static T exp2(T x) { return std::exp2(x); }
  static T log2(T x) { return std::log2(x); }
  static T tanh(T x) { return std::tanh(x); }
  static T select_equal(T a, T b, T yes, T no) { return a == b ? yes : no; }
  static T select_finite(T x, T yes, T no) { return std::fabs(x) <= highest() ? yes : no; }
};

}  // namespace scalar
}  // namespace core
}  // namespace tilewise
