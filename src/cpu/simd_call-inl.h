#pragma once

// What every SIMD kernel derives from a problem: strides, the unit in which its scores are kept, how dot products
// become scores, and what a row starts from.

#include <algorithm>

#include "cpu/ops_hwy-inl.h"
#include "kernel/kernel.hpp"
#include "kernel/sequence.hpp"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

inline constexpr long double log2_e = 1.44269504088896340735992468100189214L;

template <class T>
inline constexpr DType dtype_of = sizeof(T) == 8 ? DType::float64 : DType::float32;

// fast: as if everything were finite. by_selection: what is invisible is never multiplied; the bits equal those of
// fast where that is finite. extreme: besides, scores are scaled before the maximum is taken, so that one that
// overflows is infinite, and weights are divided by 2^64, for sums of large values whose mean is finite.
enum class Care { fast, by_selection, extreme };

template <class T>
struct Call {
  const Problem& p;
  const Buffers& buffers;
  core::Strides q, k, v, o, lse;
  T scale;      // its magnitude; the sign goes into Q
  bool staged;  // scores take more than a scale: softcap, bias, ALiBi; or the scale is extreme
};

template <class T>
Call<T> call_of(const Problem& p, const Buffers& buffers) {
  Call<T> call{p, buffers, strides_of(p.q), strides_of(p.k), strides_of(p.v), strides_of(p.o), {}, {}, false};
  if (p.lse.present()) call.lse = strides_of(p.lse);
  call.scale = static_cast<T>(std::fabs(p.scale));
  const bool ordinary = call.scale > T(1e-12) && call.scale < T(1e12);
  call.staged = !ordinary || p.softcap > 0 || p.bias.present() || p.alibi_slopes.present();
  return call;
}

template <class T>
HWY_INLINE T sink_of(const Call<T>& call, tw_i64 h) {
  return static_cast<T>(static_cast<const float*>(call.buffers.sinks)[h * call.p.sinks.strides[0]]);
}

// The unit of one head's scores: plain ones are dot products, staged ones are natural.
template <class T>
struct Units {
  bool staged;
  T log2;     // log2 units in a unit of the scores
  T natural;  // natural units in it
  T lift;     // added to the maximum
};

template <class T>
Units<T> units_of(const Call<T>& call, tw_i64 h, Care care) {
  constexpr T lift = T(44.3614195558364998027028557733112L);  // 64 ln 2
  const bool large_sink = call.p.sinks.present() && std::fabs(sink_of(call, h)) > T(1e20);
  if (call.staged || large_sink || care == Care::extreme) {
    return {true, T(log2_e), T(1), care == Care::extreme ? lift : T(0)};
  }
  return {false, static_cast<T>(std::fabs(call.p.scale) * static_cast<double>(log2_e)), call.scale, T(0)};
}

// A row of head h before any key: its sink if there is one.
template <class T>
Rows<Vec<T>> first_rows(const Call<T>& call, tw_i64 h, const Units<T>& units) {
  const Tag<T> d;
  if (!call.p.sinks.present()) return no_keys<Vec<T>>();
  // m is the sink in the scores' unit; what its rounding takes away goes into l.
  const T sink = sink_of(call, h);
  const T m = sink / units.natural;
  const double rest = static_cast<double>(sink) - static_cast<double>(m) * static_cast<double>(units.natural);
  Rows<Vec<T>> rows = sink_only(hn::Set(d, m));
  const T correction = std::isfinite(sink) ? static_cast<T>(std::exp2(rest * static_cast<double>(log2_e))) : T(1);
  rows.l = hn::Mul(rows.l, hn::Set(d, correction));
  return rows;
}

// What turns dot products into natural scores for one head of one sequence.
template <class T>
struct ScoreTerms {
  Vec<T> scale;
  Vec<T> cap;
  Vec<T> slope;
  tw_i64 delta;  // ALiBi's
};

template <class T>
HWY_INLINE ScoreTerms<T> score_terms(const Call<T>& call, const core::Sequence& sequence, tw_i64 b, tw_i64 h) {
  const Tag<T> d;
  const Problem& p = call.p;
  ScoreTerms<T> terms{hn::Set(d, call.scale), hn::Set(d, static_cast<T>(p.softcap)), hn::Zero(d),
                      core::alibi_delta(p.corner, p.delta, sequence.q_len, sequence.k_len)};
  if (p.alibi_slopes.present()) {
    const tw_i64 at = b * p.alibi_slopes.strides[0] + h * p.alibi_slopes.strides[1];
    terms.slope = hn::Set(d, static_cast<T>(static_cast<const float*>(call.buffers.alibi_slopes)[at]));
  }
  return terms;
}

// A bias of -inf masks, whatever the score.
template <class T>
HWY_INLINE Vec<T> staged_score(const ScoreTerms<T>& terms, const Problem& p, Vec<T> dot, Vec<T> bias, Vec<T> distance) {
  using V = Vec<T>;
  V x = hn::Mul(dot, terms.scale);
  if (p.softcap > 0) x = softcapped(x, terms.cap);
  if (p.bias.present()) x = hn::Add(x, bias);
  if (p.alibi_slopes.present()) x = hn::Add(x, alibi(terms.slope, distance));
  if (p.bias.present()) x = hn::IfThenElse(hn::Eq(bias, Ops<V>::minus_infinity()), bias, x);
  return x;
}

// Whether a row's result can stand: its largest score in natural units, l and O are finite. An empty row's m counts for
// nothing. Returns NaN if one of m and l is not finite, else 0.
template <class T>
HWY_INLINE Vec<T> not_finite(const Units<T>& units, Rows<Vec<T>> rows) {
  const Tag<T> d;
  const Vec<T> m = hn::Mul(rows.m, hn::Set(d, units.natural));
  const Vec<T> counted = hn::IfThenElseZero(differs(rows.l, hn::Zero(d)), m);
  return hn::Mul(hn::Add(hn::Abs(rows.l), hn::Abs(counted)), hn::Zero(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
