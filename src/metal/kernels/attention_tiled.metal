// Every thread fetches all of its keys and values from device memory by itself.
//
// Computes: O = softmax(Q K^T / sqrt(D)) V. Causal: query i sees keys 0 to i. Q, K, V and O are [N, D], row-major.
// Idea: 32 threads, one query each, load a tile of 16 keys and values into threadgroup memory together and all read it
// from there. The recurrence of each thread is that of attention.metal.
// Launch: ceil(N / 32) whole groups of 32 threads, never N threads exactly: the last group's loads need all of its
// threads. ATTENTION_N, ATTENTION_D and ATTENTION_CAUSAL as in attention.metal.
#include <metal_stdlib>
using namespace metal;

constant uint N = ATTENTION_N;
constant uint D = ATTENTION_D;
constant bool CAUSAL = ATTENTION_CAUSAL;
constant uint TILE = 16;     // keys per tile
constant uint THREADS = 32;  // threads per group, and so queries per group

kernel void attentionforward(device const float* Q [[buffer(0)]], device const float* K [[buffer(1)]],
                             device const float* V [[buffer(2)]], device float* O [[buffer(3)]],
                             uint group [[threadgroup_position_in_grid]],
                             uint lane [[thread_index_in_threadgroup]]) {
  threadgroup float k_tile[TILE * D];
  threadgroup float v_tile[TILE * D];

  // [excerpt: helpers]
  // Hazard, threads without a query: they own no row and never write, but must not leave, because the others count on
  // their share of the loads and wait for them at every barrier.
  const uint query = group * THREADS + lane;
  const bool has_query = query < N;
  const uint my_keys = has_query ? (CAUSAL ? query + 1 : N) : 0;  // this query sees keys [0, my_keys)
  // [end]

  float q[D];
  float u[D];
  for (uint d = 0; d < D; ++d) {
    q[d] = has_query ? Q[query * D + d] : 0.0f;
    u[d] = 0.0f;
  }
  const float scale = 1.0f / precise::sqrt(float(D));
  float m = -FLT_MAX;
  float l = 0.0f;

  // [excerpt: tile_loop]
  // Hazard, loop bounds: this one belongs to the group's last query and is the same number in all 32 threads. With a
  // bound of its own, a causal thread would leave the loop early and miss barriers.
  const uint group_keys = CAUSAL ? min(N, (group + 1) * THREADS) : N;
  for (uint tile_start = 0; tile_start < group_keys; tile_start += TILE) {
    // [end]
    // [excerpt: load]
    // Neighbouring lanes read neighbouring addresses. Hazard, the tail: the last tile may reach past the last key;
    // what lies there is loaded as zero, never from behind the end of K and V.
    for (uint i = lane; i < TILE * D; i += THREADS) {
      const uint element = tile_start * D + i;
      k_tile[i] = element < N * D ? K[element] : 0.0f;
      v_tile[i] = element < N * D ? V[element] : 0.0f;
    }
    // Hazard, read after write: nobody may read the tile before everybody has written it.
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // [end]
    // [excerpt: exclude]
    // Hazard, the tail again: a zero key has the score 0, not -inf, and would weigh exp(0 - m). Keys that this query
    // does not see, past the end or in its future, are left out of the loop.
    const uint tile_keys = my_keys > tile_start ? min(TILE, my_keys - tile_start) : 0;
    // [end]
    for (uint key = 0; key < tile_keys; ++key) {
      float score = 0.0f;
      for (uint d = 0; d < D; ++d) score += q[d] * k_tile[key * D + d];
      score *= scale;

      const float m_new = max(m, score);
      const float alpha = exp(m - m_new);
      const float weight = exp(score - m_new);
      l = l * alpha + weight;
      for (uint d = 0; d < D; ++d) u[d] = u[d] * alpha + weight * v_tile[key * D + d];
      m = m_new;
    }
    // [excerpt: reuse]
    // Hazard, write after read: nobody may load the next tile over this one while somebody still reads it.
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // [end]
  }
  if (!has_query) return;  // behind the last barrier
  for (uint d = 0; d < D; ++d) O[query * D + d] = u[d] / l;
}

// Still wasted: every product is one thread's multiply-add on operands from memory, although the GPU has matrix units.
