#pragma once

// core's recurrence on float, for MSL. Needs IEEE rules for infinities and NaN: compile with math mode "safe".

#include "core/lang.h"

namespace tilewise {
namespace msl {

template <class V>
struct Ops;

template <>
struct Ops<float> {
  static float zero() { return 0.0f; }
  static float one() { return 1.0f; }
  static float lowest() { return -FLT_MAX; }
  static float highest() { return FLT_MAX; }
  static float log2_e() { return M_LOG2E_F; }
  static float ln2() { return 0.693147180559945309417f; }
  static float add(float a, float b) { return a + b; }
  static float sub(float a, float b) { return a - b; }
  static float mul(float a, float b) { return a * b; }
  static float div(float a, float b) { return a / b; }
  static float neg(float a) { return -a; }
  static float abs(float a) { return metal::fabs(a); }
  static float max(float a, float b) { return metal::fmax(a, b); }  // drops a NaN: it travels through l and O
  static float min(float a, float b) { return metal::fmin(a, b); }
  static float exp2(float x) { return metal::exp2(x); }
  static float log2(float x) { return metal::precise::log2(x); }
  static float tanh(float x) { return metal::precise::tanh(x); }
  static float select_equal(float a, float b, float yes, float no) { return a == b ? yes : no; }
  static float select_finite(float x, float yes, float no) { return metal::fabs(x) <= FLT_MAX ? yes : no; }
};

#define TW_TARGET
#include "core/row_softmax-inl.h"
#include "core/scores-inl.h"
#undef TW_TARGET

// The weight of a dot product that is worth `unit` log2 units, against a maximum m in log2 units, in one multiply-add.
// The rounding of m is the same for all keys of a row and cancels, as long as alpha is taken from such m as well.
inline float dot_weight(float dot, float unit, float m) { return Ops<float>::exp2(metal::fma(dot, unit, -m)); }

}  // namespace msl
}  // namespace tilewise
