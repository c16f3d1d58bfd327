// One core computes one query after another, although no query needs another one's result.
//
// Computes: O = softmax(Q K^T / sqrt(D)) V. Causal: query i sees keys 0 to i. Q, K, V and O are [N, D], row-major.
// Idea: one thread per query. Each runs the recurrence of the one-query rung over all of its keys, with m, l and u in
// registers; threads share nothing, so there is nothing to synchronise.
// Launch: any grid of at least N threads in a row. Before this text the host puts #define ATTENTION_N, ATTENTION_D and
// ATTENTION_CAUSAL (0 or 1): q and u can live in registers only if the compiler knows their length.
#include <metal_stdlib>
using namespace metal;

constant uint N = ATTENTION_N;
constant uint D = ATTENTION_D;
constant bool CAUSAL = ATTENTION_CAUSAL;

// [excerpt: signature]
kernel void attentionforward(device const float* Q [[buffer(0)]], device const float* K [[buffer(1)]],
                             device const float* V [[buffer(2)]], device float* O [[buffer(3)]],
                             uint query [[thread_position_in_grid]]) {
  if (query >= N) return;  // the grid is rounded up to whole groups; without barriers a thread may leave when it likes
  // [end]
  float q[D];
  float u[D];
  for (uint d = 0; d < D; ++d) {
    q[d] = Q[query * D + d];
    u[d] = 0.0f;
  }
  const float scale = 1.0f / precise::sqrt(float(D));
  // [excerpt: start]
  float m = -FLT_MAX;  // not -INFINITY: a compiler in fast-math mode may assume that infinities never occur
  float l = 0.0f;
  // [end]

  // [excerpt: key_loop]
  const uint keys = CAUSAL ? query + 1 : N;  // a causal query sees the keys up to its own position
  for (uint key = 0; key < keys; ++key) {
    float score = 0.0f;
    for (uint d = 0; d < D; ++d) score += q[d] * K[key * D + d];
    score *= scale;

    const float m_new = max(m, score);
    const float alpha = exp(m - m_new);       // 0 for the first key, 1 while the maximum stays
    const float weight = exp(score - m_new);  // at most 1, so nothing overflows
    l = l * alpha + weight;
    for (uint d = 0; d < D; ++d) u[d] = u[d] * alpha + weight * V[key * D + d];
    m = m_new;
  }
  // [end]
  for (uint d = 0; d < D; ++d) O[query * D + d] = u[d] / l;  // l >= 1: the largest score weighs exp(0)
}

// Still wasted: every thread fetches all of its keys and values from device memory by itself.
