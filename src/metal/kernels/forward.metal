// Attention forward on the matrix units: a simdgroup owns 8 or 16 queries and keeps their scores, softmax state and
// output in registers, in float32 whatever the inputs are.
//
// The host puts these lines before this text (src/metal/tuning.hpp has the tables):
//   ATTENTION_T           element type of q, k, v, o: float, half or bfloat
//   ATTENTION_D, _DV      head dimension and columns of V per block, padded to multiples of 16
//   ATTENTION_ROW_BLOCKS  8-query blocks per simdgroup: 2 halves what is read of K and V, 1 gives twice the simdgroups
//   ATTENTION_KEY_BLOCKS  8-key blocks per tile
//   ATTENTION_SIMDGROUPS  simdgroups per threadgroup
//   ATTENTION_STAGED      1: the group copies K and V tiles to threadgroup memory, which also straightens any stride
//                         and padding; 0: fragments come from device memory, and no thread waits for another
//   ATTENTION_ALIGNED     1: rows are contiguous, vectors of 4 aligned, D and Dv unpadded. Needed by STAGED 0
//   ATTENTION_CACHE_Q     1: Q stays in registers; 0: it is read again for every tile of keys
//   ATTENTION_TERMS       1: there is a mask, bias, ALiBi, softcap, sink or an unusual scale (not positive, huge, tiny)
//
// What it still wastes: the matrix product needs exp2 to wait for it and the other way round; only other simdgroups of
// the same core fill the gaps. K and V are read once per 8 or 16 queries.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

#include "steps.h"

using namespace tilewise;
using namespace tilewise::msl;

#if ATTENTION_STAGED
// Copies rows [first, first + 8 KB) of K or V, as `columns` columns padded with zeros: rows past the end are zero, too.
inline void stage(constant ForwardArguments& a, Keys<T> keys, bool values, int first, int columns, int padded,
                  threadgroup T* tile, uint thread_index) {
  constexpr int vector = ATTENTION_ALIGNED ? 4 : 1;
  const int per_row = padded / vector;
  for (int n = int(thread_index); n < 8 * KB * per_row; n += 32 * ATTENTION_SIMDGROUPS) {
    const int j = first + n / per_row;
    const int c = n % per_row * vector;
    threadgroup T* to = tile + n / per_row * (padded + PAD) + c;
    if (j >= int(keys.sequence.k_len) || c >= columns) {
      for (int e = 0; e < vector; ++e) to[e] = T(0.0f);
      continue;
    }
    device const T* from = values ? value_at(a, keys, j) : key_at(a, keys, j);
    if (ATTENTION_ALIGNED) {
      *reinterpret_cast<threadgroup vec<T, 4>*>(to) = *reinterpret_cast<device const vec<T, 4>*>(from + c);
    } else {
      to[0] = from[c * (values ? a.v.d : a.k.d)];
    }
  }
}
#endif

// Where a sequence's rows of one head are read and written.
struct Head {
  device const T* q;
  device T* o;  // at the first column of this block
  device float* lse;
  bool writes_lse;
  float sink;   // -inf: none
  int columns;  // of this block that exist
};

inline void store_row(constant ForwardArguments& a, device T* o, int r, int columns, thread State& state) {
  for (int c = 0; c < DV; c += 16) {
    const float2 x = state.o[r][c / 8].thread_elements();
    const float2 y = state.o[r][c / 8 + 1].thread_elements();
    const int at = c + 2 * state.column;
    if (ATTENTION_ALIGNED) {
      store_device4(o + at, x, y);
      continue;
    }
    if (at < columns) o[at * a.o.d] = T(x[0]);
    if (at + 1 < columns) o[(at + 1) * a.o.d] = T(x[1]);
    if (at + 2 < columns) o[(at + 2) * a.o.d] = T(y[0]);
    if (at + 3 < columns) o[(at + 3) * a.o.d] = T(y[1]);
  }
}

// Writes one row block: normalised output, LSE, zeros in padding rows. Rows that are not finite are computed again.
inline void store(constant ForwardArguments& a, Keys<T> keys, Head head, int r, ushort lane, thread State& state) {
  const int i = state.i[r];
  const bool is_query = i < keys.sequence.q_len;
  const Finished finished = finish(r, state);
  Rows<float> rows = finished.rows;
  bool redone = false;
  for (int row = 0; row < 8; ++row) {
    if (!simd_any(finished.redo && is_query && state.row == row)) continue;
    const int at = i - state.row + row;
    const core::Range seen = core::visible_keys(band_of_sequence(a, keys.sequence), at, keys.sequence.k_len);
    const Rows<float> careful =
        attend_carefully<DV>(a, keys, state.terms[r], head.q + at * a.q.s, at, int(seen.begin), int(seen.end),
                             sink_only(head.sink), head.o + at * a.o.s, a.o.d, head.columns, lane);
    if (state.row == row) {
      rows = careful;
      redone = true;
    }
  }
  if (i >= keys.sequence.q_slot) return;
  if (!is_query) {
    rows = no_keys<float>();
    for (int c = 0; c < DV / 8; ++c) set(state.o[r][c], 0.0f, 0.0f);
  }
  if (!redone) store_row(a, head.o + i * a.o.s, r, head.columns, state);
  if (!head.writes_lse || state.column != 0) return;
  const bool natural = ATTENTION_TERMS || redone;
  head.lse[i * a.lse.s] = natural ? lse(rows, Ops<float>::one()) : lse(rows);
}

kernel void attention_forward(device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
                              device const T* v [[buffer(2)]], device T* o [[buffer(3)]],
                              device float* lse [[buffer(4)]], device const uchar* mask_array [[buffer(5)]],
                              device const T* bias [[buffer(6)]], device const float* slopes [[buffer(7)]],
                              device const float* sinks [[buffer(8)]], device const int* q_lengths [[buffer(9)]],
                              device const int* k_lengths [[buffer(10)]], device const int* cu_q [[buffer(11)]],
                              device const int* cu_k [[buffer(12)]], device const int* table [[buffer(13)]],
                              constant ForwardArguments& a [[buffer(14)]], uint3 group [[threadgroup_position_in_grid]],
                              uint3 groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint lane_index [[thread_index_in_simdgroup]]) {
#if ATTENTION_STAGED
  threadgroup T k_tile[8 * KB * (D + PAD)];
  threadgroup T v_tile[8 * KB * (DV + PAD)];
#endif
  const ushort lane = ushort(lane_index);
  const Integers integers = {q_lengths, k_lengths, cu_q, cu_k, table};
  const tw_i64 tile_index = a.heavy_first ? groups.x - 1 - group.x : group.x;
  const Work work = find_work(a, integers, tile_index, group.z / a.v_blocks, GROUP_ROWS);
  if (!work.exists) return;  // the whole group
  const core::Sequence sequence = work.sequence;
  const tw_i64 h = group.y;
  const tw_i64 kv_head = core::kv_head_of(h, a.q_heads, a.kv_heads);
  const int v_begin = int(group.z % a.v_blocks) * DV;

  const Keys<T> keys = {k, v + v_begin * a.v.d, table, sequence, work.item, kv_head};
  const Terms<T> terms = terms_of(a, sequence, work.item, h, mask_array, bias, slopes);
  const Head head = {q + element(a.q, sequence.q_item, h, sequence.q_start, 0),
                     o + element(a.o, sequence.q_item, h, sequence.q_start, v_begin),
                     lse + element(a.lse, sequence.q_item, h, sequence.q_start, 0),
                     a.has_lse && v_begin == 0,
                     a.has_sinks ? sinks[h * a.sink_h] : -INFINITY,
                     min(DV, int(a.v_dim) - v_begin)};
  const core::Band band = band_of_sequence(a, sequence);
  const float dot_unit = a.scale_log2;
  const int first_row = int(work.first_row) + int(simdgroup) * ROWS;

  State state;
  state.row = lane_row(lane);
  state.column = lane_column(lane);
  for (int r = 0; r < RB; ++r) {
    state.i[r] = first_row + 8 * r + state.row;
    state.visible[r] = visible_to(band, {first_row + 8 * r, first_row + 8 * r + 8}, state.i[r], sequence);
    state.query[r] = head.q + core::max_i64(0, core::min_i64(state.i[r], sequence.q_len - 1)) * a.q.s;
    state.terms[r] = terms;
    start(a, r, sequence.q_len > 0, head.sink, state);
  }

  // With staged tiles all simdgroups walk the keys of the whole group, because all meet at the barriers.
  const tw_i64 walk_begin = ATTENTION_STAGED ? work.first_row : first_row;
  const tw_i64 walk_rows = ATTENTION_STAGED ? GROUP_ROWS : ROWS;
  const core::Range walk = {walk_begin, core::min_i64(walk_begin + walk_rows, sequence.q_len)};
  const core::Range blocks = core::key_tiles(band, walk, sequence.k_len, 8);
  // [excerpt: loop]
  for (int block = int(blocks.begin) / KB * KB; block < blocks.end; block += KB) {
#if ATTENTION_STAGED
    stage(a, keys, false, 8 * block, int(a.head_dim), D, k_tile, thread_index);
    stage(a, keys, true, 8 * block, head.columns, DV, v_tile, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // read after write
    const Tile tile = {block, k_tile, v_tile};
#else
    const Tile tile = {block};
#endif
    scores(a, keys, tile, state);
    mask(a, tile, state);
    rescale(tile, dot_unit, state);
    weights(tile, dot_unit, state);
    accumulate(a, keys, tile, state);
#if ATTENTION_STAGED
    threadgroup_barrier(mem_flags::mem_threadgroup);  // write after read: the next tile goes over this one
#endif
  }
  // [end]
  for (int r = 0; r < RB; ++r) store(a, keys, head, r, lane, state);
}
