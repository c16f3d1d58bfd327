// The online softmax, once, over a vector type V. No include guard: each target includes it inside its own namespace,
// after declaring Ops<V> there, because a template compiled once cannot be inlined into another instruction set.
//
// Everything is in log2 units: m is the running maximum of scores times log2(e), l the running sum of exp2(score - m).
// The overloads with a `unit` keep scores and m in any unit instead, of which each is worth `unit` > 0 log2 units: the
// difference of two scores is taken before it is scaled, so neither the scaling's rounding nor its overflow reaches m.
// An empty row is {lowest finite, 0}, not {-inf, 0}: then m - m is never inf - inf and nothing below needs a guard.
// Sources: Milakov and Gimelshein 2018, algorithm 3; Dao 2023, section 3.1.

#ifndef TW_TARGET  // parsed alone, by tools
#include "core/ops_scalar.h"
using tilewise::core::scalar::Ops;
#endif

template <class V>
struct Rows {
  V m;
  V l;
};

template <class V>
struct Grown {
  Rows<V> rows;
  V alpha;  // what the caller scales O by
};

template <class V>
struct Merged {
  Rows<V> rows;
  V wa;  // weights of the two parts' unnormalised O
  V wb;
};

// 0 for a masked score (-inf), 1 for the maximum itself; NaN in either argument survives; (+inf, +inf) is NaN.
template <class V>
TW_FN V weight(V score, V m) {
  return Ops<V>::exp2(Ops<V>::sub(score, m));
}

template <class V>
TW_FN V weight(V score, V m, V unit) {
  return Ops<V>::exp2(Ops<V>::mul(Ops<V>::sub(score, m), unit));
}

template <class V>
TW_FN Rows<V> no_keys() {
  return {Ops<V>::lowest(), Ops<V>::zero()};
}

// A row that has seen one extra logit (a sink, or the LSE of a finished part), in log2 units. -inf gives an
// empty row, NaN and +inf give l = NaN.
template <class V>
TW_FN Rows<V> sink_only(V logit) {
  const V m = Ops<V>::max(Ops<V>::lowest(), logit);
  return {m, weight(logit, m)};
}

// Raises the maximum to cover a block whose largest score is block_max (-inf when the block is masked). Ops::max may
// drop a NaN, so m may miss one; l does not, once the block's weights are added. An empty row needs O = 0: its alpha is
// 0 or 1.
template <class V>
TW_FN Grown<V> grow(Rows<V> rows, V block_max) {
  const V m = Ops<V>::max(rows.m, block_max);
  const V alpha = weight(rows.m, m);
  return {{m, Ops<V>::mul(rows.l, alpha)}, alpha};
}

template <class V>
TW_FN Grown<V> grow(Rows<V> rows, V block_max, V unit) {
  const V m = Ops<V>::max(rows.m, block_max);
  const V alpha = weight(rows.m, m, unit);
  return {{m, Ops<V>::mul(rows.l, alpha)}, alpha};
}

template <class V>
TW_FN Rows<V> add(Rows<V> rows, V sum) {
  return {rows.m, Ops<V>::add(rows.l, sum)};
}

// Two parts of one row over disjoint keys. The O of an empty part is multiplied by its weight, too: it must be finite.
template <class V>
TW_FN Merged<V> merge(Rows<V> a, Rows<V> b) {
  const V m = Ops<V>::max(a.m, b.m);
  const V wa = weight(a.m, m);
  const V wb = weight(b.m, m);
  return {{m, Ops<V>::add(Ops<V>::mul(a.l, wa), Ops<V>::mul(b.l, wb))}, wa, wb};
}

template <class V>
TW_FN Merged<V> merge(Rows<V> a, Rows<V> b, V unit) {
  const V m = Ops<V>::max(a.m, b.m);
  const V wa = weight(a.m, m, unit);
  const V wb = weight(b.m, m, unit);
  return {{m, Ops<V>::add(Ops<V>::mul(a.l, wa), Ops<V>::mul(b.l, wb))}, wa, wb};
}

// 1 / l; 0 for an empty row, so that its output is 0.
template <class V>
TW_FN V inverse_sum(Rows<V> rows) {
  return Ops<V>::select_equal(rows.l, Ops<V>::zero(), Ops<V>::zero(), Ops<V>::div(Ops<V>::one(), rows.l));
}

// Natural log-sum-exp; -inf for an empty row.
template <class V>
TW_FN V lse(Rows<V> rows) {
  return Ops<V>::mul(Ops<V>::add(rows.m, Ops<V>::log2(rows.l)), Ops<V>::ln2());
}

// The same with m in units of which each is worth `natural` units of the natural logarithm.
template <class V>
TW_FN V lse(Rows<V> rows, V natural) {
  return Ops<V>::add(Ops<V>::mul(rows.m, natural), Ops<V>::mul(Ops<V>::log2(rows.l), Ops<V>::ln2()));
}
