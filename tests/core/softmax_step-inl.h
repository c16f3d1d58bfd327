// Runs one SoftmaxStep on the lanes that start at element `at` of each array. Included inside a target's namespace
// after row_softmax-inl.h and scores-inl.h, like them without a guard. Lanes is the adapter to the target's vector
// type:
//   struct Lanes { using T = ...; using V = ...; static V load(const T* from); static void store(V v, T* to); };
// `in` and `out` hold softmax_step_arrays arrays each, all of them readable and writable whatever the step.

template <class Lanes>
TW_FN void run_softmax_step(SoftmaxStep step, const typename Lanes::T* const* in, typename Lanes::T* const* out,
                            decltype(sizeof(0)) at) {
  using V = typename Lanes::V;
  using O = Ops<V>;
  const V a = Lanes::load(in[0] + at);
  const V b = Lanes::load(in[1] + at);
  const V c = Lanes::load(in[2] + at);
  const V d = Lanes::load(in[3] + at);
  V r0 = O::zero();
  V r1 = O::zero();
  V r2 = O::zero();
  V r3 = O::zero();
  switch (step) {
    case SoftmaxStep::add: r0 = O::add(a, b); break;
    case SoftmaxStep::sub: r0 = O::sub(a, b); break;
    case SoftmaxStep::mul: r0 = O::mul(a, b); break;
    case SoftmaxStep::div: r0 = O::div(a, b); break;
    case SoftmaxStep::neg: r0 = O::neg(a); break;
    case SoftmaxStep::abs: r0 = O::abs(a); break;
    case SoftmaxStep::max: r0 = O::max(a, b); break;
    case SoftmaxStep::min: r0 = O::min(a, b); break;
    case SoftmaxStep::exp2: r0 = O::exp2(a); break;
    case SoftmaxStep::log2: r0 = O::log2(a); break;
    case SoftmaxStep::tanh: r0 = O::tanh(a); break;
    case SoftmaxStep::select_equal: r0 = O::select_equal(a, b, c, d); break;
    case SoftmaxStep::select_finite: r0 = O::select_finite(a, b, c); break;
    case SoftmaxStep::constants:
      r0 = O::zero();
      r1 = O::one();
      r2 = O::lowest();
      r3 = O::highest();
      break;
    case SoftmaxStep::units:
      r0 = O::log2_e();
      r1 = O::ln2();
      break;
    case SoftmaxStep::weight: r0 = weight(a, b); break;
    case SoftmaxStep::no_keys: {
      const Rows<V> rows = no_keys<V>();
      r0 = rows.m;
      r1 = rows.l;
      break;
    }
    case SoftmaxStep::sink_only: {
      const Rows<V> rows = sink_only(a);
      r0 = rows.m;
      r1 = rows.l;
      break;
    }
    case SoftmaxStep::grow: {
      const Grown<V> grown = grow(Rows<V>{a, b}, c);
      r0 = grown.rows.m;
      r1 = grown.rows.l;
      r2 = grown.alpha;
      break;
    }
    case SoftmaxStep::add_sum: {
      const Rows<V> rows = add(Rows<V>{a, b}, c);
      r0 = rows.m;
      r1 = rows.l;
      break;
    }
    case SoftmaxStep::merge: {
      const Merged<V> merged = merge(Rows<V>{a, b}, Rows<V>{c, d});
      r0 = merged.rows.m;
      r1 = merged.rows.l;
      r2 = merged.wa;
      r3 = merged.wb;
      break;
    }
    case SoftmaxStep::inverse_sum: r0 = inverse_sum(Rows<V>{a, b}); break;
    case SoftmaxStep::lse: r0 = lse(Rows<V>{a, b}); break;
    case SoftmaxStep::to_log2_units: r0 = to_log2_units(a); break;
    case SoftmaxStep::softcapped: r0 = softcapped(a, b); break;
    case SoftmaxStep::alibi: r0 = alibi(a, b); break;
  }
  Lanes::store(r0, out[0] + at);
  Lanes::store(r1, out[1] + at);
  Lanes::store(r2, out[2] + at);
  Lanes::store(r3, out[3] + at);
}
