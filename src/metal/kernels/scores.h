#pragma once

// What turns a dot product into a score, in natural units, in DESIGN section 2's order.

#include "softmax_metal.h"
#include "work.h"

namespace tilewise {
namespace msl {

// The arrays that a score may depend on, at one batch item and head. Bias holds Q's dtype or float32.
template <typename T>
struct Terms {
  device const uchar* mask;
  device const T* bias;
  device const float* float_bias;
  float slope;  // ALiBi, 0 without
  tw_i64 alibi_delta;
};

template <typename T>
inline Terms<T> terms_of(constant ForwardArguments& a, core::Sequence sequence, tw_i64 item, tw_i64 head,
                         device const uchar* mask, device const T* bias, device const float* slopes) {
  Terms<T> terms;
  terms.mask = mask + element(a.mask, item, head, 0, 0);
  const tw_i64 bias_at = element(a.bias, item, head, 0, 0);
  terms.bias = bias + bias_at;
  terms.float_bias = reinterpret_cast<device const float*>(bias) + bias_at;
  terms.slope = a.has_slopes ? slopes[item * a.slope_b + head * a.slope_h] : 0.0f;
  terms.alibi_delta = core::alibi_delta(core::Corner(a.corner), a.delta, sequence.q_len, sequence.k_len);
  return terms;
}

// Query i against key j, which lies inside the band and the lengths; -inf where a mask hides it.
template <typename T>
inline float score(constant ForwardArguments& a, Terms<T> terms, float dot, int i, int j) {
  if (a.has_mask && terms.mask[i * a.mask.s + j * a.mask.d] == 0) return -INFINITY;
  float s = a.scale * dot;
  if (a.softcap > 0.0f) s = softcapped(s, a.softcap);
  float added = 0.0f;
  if (a.has_bias) {
    const tw_i64 at = i * a.bias.s + j * a.bias.d;
    const float bias = a.bias_is_float ? terms.float_bias[at] : float(terms.bias[at]);
    if (bias == -INFINITY) return -INFINITY;
    added = bias;
  }
  if (a.has_slopes) added += alibi(terms.slope, float(core::alibi_distance(i, j, terms.alibi_delta)));
  return s + added;
}

}  // namespace msl
}  // namespace tilewise
