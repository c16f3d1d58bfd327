// Few queries over a long cache: the keys are split over simdgroups, and the query heads that share a KV head share one
// reading of its K and V.
//
// The rows of a simdgroup are pairs (query i, head g of the group), g fastest: 8 or 16 of them, with the steps and
// constants of forward.metal (STAGED 0, ALIGNED 1). Each simdgroup walks its own part of the keys and leaves a partial
// result in scratch, which merge.metal joins: the part's output, normalised, and its {m, l}. Parts are cut at multiples
// of a.split_keys.
//
// What it still wastes: with fewer than 8 rows most of a product is padding, which costs nothing while memory is the
// limit; and when V has several blocks of columns, each of them reads K.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

#include "steps.h"

using namespace tilewise;
using namespace tilewise::msl;

// What the rows of a simdgroup have in common.
struct Part {
  device const T* q;  // of the batch item
  device const uchar* mask;
  device const T* bias;
  device const float* slopes;
  device float* o;        // [B, Hq, Sq, splits, Dv], at this item, part and column block
  device float2* states;  // [B, Hq, Sq, splits]
  core::Range keys;
  core::Band band;
  int group;    // query heads per KV head
  int columns;  // of this block
  bool writes_state;
};

// A row (i, h) of the simdgroup's KV head.
struct Row {
  int i;
  tw_i64 h;
  bool exists;
};

inline Row row_of(Part part, Keys<T> keys, int n) {
  const int i = n / part.group;
  return {i, keys.kv_head * part.group + n % part.group, i < keys.sequence.q_len};
}

// Index of a row's part in scratch; parts are neighbours.
inline tw_i64 scratch_index(constant DecodeArguments& a, Row row) { return (row.h * a.call.q_rows + row.i) * a.splits; }

inline core::Range clipped(core::Range keys, core::Range part) {
  const tw_i64 begin = core::max_i64(keys.begin, part.begin);
  return {begin, core::max_i64(begin, core::min_i64(keys.end, part.end))};
}

inline void store_part(constant DecodeArguments& a, Keys<T> keys, Part part, int first_row, int r, ushort lane,
                       thread State& state) {
  const Finished finished = finish(r, state);
  const Row mine = row_of(part, keys, first_row + state.row);
  Rows<float> rows = finished.rows;
  bool redone = false;
  for (int n = 0; n < 8; ++n) {
    if (!simd_any(finished.redo && mine.exists && state.row == n)) continue;
    const Row row = row_of(part, keys, first_row + n);
    const core::Range seen = clipped(core::visible_keys(part.band, row.i, keys.sequence.k_len), part.keys);
    const Terms<T> terms = terms_of(a.call, keys.sequence, keys.item, row.h, part.mask, part.bias, part.slopes);
    const Rows<float> careful = attend_carefully<DV>(
        a.call, keys, terms, part.q + row.h * a.call.q.h + row.i * a.call.q.s, row.i, int(seen.begin), int(seen.end),
        no_keys<float>(), part.o + scratch_index(a, row) * a.call.v_dim, 1, part.columns, lane);
    if (state.row == n) {
      rows = careful;
      if (!ATTENTION_TERMS) rows.m = to_log2_units(rows.m);
      redone = true;
    }
  }
  if (!mine.exists) return;
  const tw_i64 at = scratch_index(a, mine);
  for (int c = 0; !redone && c < DV; c += 16) {
    store_device4(part.o + at * a.call.v_dim + c + 2 * state.column, state.o[r][c / 8].thread_elements(),
                  state.o[r][c / 8 + 1].thread_elements());
  }
  if (part.writes_state && state.column == 0) part.states[at] = float2(rows.m, rows.l);
}

kernel void attention_decode(device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
                             device const T* v [[buffer(2)]], device const uchar* mask_array [[buffer(5)]],
                             device const T* bias [[buffer(6)]], device const float* slopes [[buffer(7)]],
                             device const int* q_lengths [[buffer(9)]], device const int* k_lengths [[buffer(10)]],
                             device const int* cu_q [[buffer(11)]], device const int* cu_k [[buffer(12)]],
                             device const int* table [[buffer(13)]], constant DecodeArguments& a [[buffer(14)]],
                             device float* partial_o [[buffer(15)]], device float2* partial_states [[buffer(16)]],
                             uint3 group [[threadgroup_position_in_grid]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]],
                             uint lane_index [[thread_index_in_simdgroup]]) {
  const int split = int(group.x) * ATTENTION_SIMDGROUPS + int(simdgroup);
  if (split >= a.splits) return;  // no barriers: simdgroups are independent
  const ushort lane = ushort(lane_index);
  const tw_i64 item = group.z / uint(a.call.v_blocks);
  const int v_begin = int(group.z % uint(a.call.v_blocks)) * DV;
  const tw_i64 kv_head = group.y / uint(a.row_tiles);
  const int first_row = int(group.y % uint(a.row_tiles)) * ROWS;

  const Integers integers = {q_lengths, k_lengths, cu_q, cu_k, table};
  const core::Sequence sequence = sequence_of(a.call, integers, item);
  const Keys<T> keys = {k, v + v_begin, table, sequence, item, kv_head};
  const tw_i64 first_part = item * a.call.q_heads * a.call.q_rows * a.splits + split;
  const Part part = {q + item * a.call.q.b,
                     mask_array,
                     bias,
                     slopes,
                     partial_o + first_part * a.call.v_dim + v_begin,
                     partial_states + first_part,
                     core::split_range(sequence.k_len, a.split_keys, split),
                     band_of_sequence(a.call, sequence),
                     int(a.call.q_heads / a.call.kv_heads),
                     min(DV, int(a.call.v_dim) - v_begin),
                     v_begin == 0};

  State state;
  state.row = lane_row(lane);
  state.column = lane_column(lane);
  int begin = int(part.keys.end / 8 + 1), end = 0;  // 8-key blocks that some row sees
  for (int r = 0; r < RB; ++r) {
    const int n = first_row + 8 * r;
    const Row row = row_of(part, keys, n + state.row);
    const int last = (n + 7) / part.group;
    state.i[r] = row.i;
    Visible visible = visible_to(part.band, {n / part.group, last + 1}, row.i, sequence);
    visible.begin = max(visible.begin, int(part.keys.begin / 8));
    visible.end = min(visible.end, int(core::ceil_div(part.keys.end, 8)));
    const core::Range seen = clipped({visible.first_key, visible.end_key}, part.keys);
    visible.first_key = int(seen.begin);
    visible.end_key = int(seen.end);
    state.visible[r] = visible;
    if (visible.begin < visible.end) {
      begin = min(begin, visible.begin);
      end = max(end, visible.end);
    }
    const Row read = row.exists ? row : row_of(part, keys, 0);  // padding is never read
    state.query[r] = part.q + read.h * a.call.q.h + read.i * a.call.q.s;
    state.terms[r] = terms_of(a.call, sequence, item, read.h, mask_array, bias, slopes);
    start(a.call, r, sequence.q_len > 0, -INFINITY, state);
  }
  for (int block = begin / KB * KB; block < end; block += KB) {
    const Tile tile = {block};
    scores(a.call, keys, tile, state);
    mask(a.call, tile, state);
    rescale(tile, a.call.scale_log2, state);
    weights(tile, a.call.scale_log2, state);
    accumulate(a.call, keys, tile, state);
  }
  for (int r = 0; r < RB; ++r) store_part(a, keys, part, first_row + 8 * r, r, lane, state);
}
