// From a dot product to a score in log2 units, once, over a vector type V. Included like row_softmax-inl.h.
// The order is: scale, softcap, bias, ALiBi, then masking to -inf by selection.

#ifndef TW_TARGET  // parsed alone, by tools
#include "core/ops_scalar.h"
using tilewise::core::scalar::Ops;
#endif

// x * log2(e), kept finite when x is: a finite score or bias never masks. Infinities and NaN stay what they are.
template <class V>
TW_FN V to_log2_units(V x) {
  const V y = Ops<V>::mul(x, Ops<V>::log2_e());
  const V clamped = Ops<V>::max(Ops<V>::min(y, Ops<V>::highest()), Ops<V>::lowest());
  return Ops<V>::select_finite(x, clamped, x);
}

// cap * tanh(s / cap) through the target's tanh, which saturates at +-1 and keeps NaN.
template <class V>
TW_FN V softcapped(V s, V cap) {
  return Ops<V>::mul(cap, Ops<V>::tanh(Ops<V>::div(s, cap)));
}

// -slope * |distance|, in natural units; distance = i + delta - j.
template <class V>
TW_FN V alibi(V slope, V distance) {
  return Ops<V>::neg(Ops<V>::mul(slope, Ops<V>::abs(distance)));
}
