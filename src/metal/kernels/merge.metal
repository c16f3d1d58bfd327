// Joins the partial results of decode.metal: one simdgroup per output row, its lanes own the columns. The parts come in
// order, so that the bits repeat. A part with no visible key has l = 0 and is skipped, whatever its output holds.
//
// The host defines ATTENTION_T (element type of o) and ATTENTION_TERMS (the unit of m, see steps.h).
#include <metal_stdlib>
using namespace metal;

#include "softmax_metal.h"
#include "work.h"

using namespace tilewise;
using namespace tilewise::msl;

typedef ATTENTION_T T;
constant constexpr float UNIT = ATTENTION_TERMS ? M_LOG2E_F : 1.0f;  // log2 units that one unit of m is worth
constant constexpr int MAX_COLUMNS = 576 / 32;                       // per lane

kernel void attention_merge(device T* o [[buffer(3)]], device float* lse_out [[buffer(4)]],
                            device const float* sinks [[buffer(8)]], device const int* q_lengths [[buffer(9)]],
                            device const int* k_lengths [[buffer(10)]], device const int* cu_q [[buffer(11)]],
                            device const int* cu_k [[buffer(12)]], device const int* table [[buffer(13)]],
                            constant DecodeArguments& a [[buffer(14)]], device const float* partial_o [[buffer(15)]],
                            device const float2* partial_states [[buffer(16)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint lane_index [[thread_index_in_simdgroup]]) {
  const int i = int(group.x);
  const tw_i64 h = group.y, item = group.z;
  const int lane = int(lane_index);
  const int columns = int(a.call.v_dim);
  const Integers integers = {q_lengths, k_lengths, cu_q, cu_k, table};
  const bool is_query = i < sequence_of(a.call, integers, item).q_len;

  const tw_i64 first_part = ((item * a.call.q_heads + h) * a.call.q_rows + i) * a.splits;
  const int parts = is_query ? int(a.splits) : 0;

  Rows<float> rows = no_keys<float>();
  if (is_query && a.call.has_sinks) rows = sink_only(sinks[h * a.call.sink_h]);
  for (int split = 0; split < parts; ++split) {
    const float2 part = partial_states[first_part + split];
    if (part[1] == 0.0f) continue;
    const Grown<float> grown = grow(rows, part[0], UNIT);
    rows = add(grown.rows, weight(part[0], grown.rows.m, UNIT) * part[1]);
  }
  // Outputs of parts are averages, and so is their sum with weights that add up to 1: it cannot overflow.
  float average[MAX_COLUMNS];
  for (int c = 0; c < MAX_COLUMNS; ++c) average[c] = 0.0f;
  for (int split = 0; split < parts; ++split) {
    const float2 part = partial_states[first_part + split];
    if (part[1] == 0.0f) continue;
    const float w = weight(part[0], rows.m, UNIT) * part[1] / rows.l;
    device const float* part_o = partial_o + (first_part + split) * columns;
    for (int c = 0; lane + 32 * c < columns; ++c) average[c] += w * part_o[lane + 32 * c];
  }
  device T* out = o + element(a.call.o, item, h, i, 0);
  for (int c = 0; lane + 32 * c < columns; ++c) out[(lane + 32 * c) * a.call.o.d] = T(average[c]);
  if (!a.call.has_lse || lane != 0) return;
  lse_out[element(a.call.lse, item, h, i, 0)] = ATTENTION_TERMS ? lse(rows, Ops<float>::one()) : lse(rows);
}
