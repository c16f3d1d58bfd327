// Untiled attention on a GPU: one thread per query, the whole key loop in registers, no thread knows of another.
//
// softmax(Q K^T / sqrt(D)) V for one head: Q, K, V and O are contiguous [N, D] in float32. A thread keeps the running
// maximum m, the sum l and the unnormalised output u of one query; the N x N scores never exist. When a key raises m,
// everything gathered so far was relative to the old maximum and is multiplied by alpha = exp(m_old - m_new).
//
// The host puts three lines before this text: #define ATTENTION_N, ATTENTION_D and ATTENTION_CAUSAL (0 or 1). They are
// compile-time constants because q and u stay in registers only if their length is known to the compiler.
//
// What it still wastes: every thread reads all of K and V from device memory, N/2 times more than there are values.
#include <metal_stdlib>
using namespace metal;

constant uint N = ATTENTION_N;
constant uint D = ATTENTION_D;
constant bool CAUSAL = ATTENTION_CAUSAL;

kernel void attentionforward(device const float* Q [[buffer(0)]], device const float* K [[buffer(1)]],
                             device const float* V [[buffer(2)]], device float* O [[buffer(3)]],
                             uint query [[thread_position_in_grid]]) {
  if (query >= N) return;  // the grid is rounded up to whole groups; leaving early is safe where there are no barriers

  float q[D];
  float u[D];
  for (uint d = 0; d < D; ++d) {
    q[d] = Q[query * D + d];
    u[d] = 0.0f;
  }
  const float scale = 1.0f / precise::sqrt(float(D));
  float m = -FLT_MAX;  // not -INFINITY: a compiler in fast-math mode may assume that infinities never occur
  float l = 0.0f;

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
  for (uint d = 0; d < D; ++d) O[query * D + d] = u[d] / l;  // l >= 1: the largest score weighs exp(0)
}
