// Attention forward on the matrix units: a simdgroup owns 8 or 16 queries and keeps their scores, softmax state and
// output in registers, in float32 whatever the inputs are.
//
// The host puts these lines before this text (src/metal/tuning.hpp has the tables):
//   ATTENTION_T           element type of q, k, v, o: float, half or bfloat
//   ATTENTION_D, _DV      head dimension and columns of V per block, padded to multiples of 16
//   ATTENTION_ROW_BLOCKS  8-query blocks per simdgroup: 2 halves what is read of K and V, 1 gives twice the simdgroups
//   ATTENTION_KEY_BLOCKS  8-key blocks per tile
//   ATTENTION_SIMDGROUPS  simdgroups per threadgroup
//   ATTENTION_STAGED      1: the group copies K and V tiles to threadgroup memory, which also straightens any stride and
//                         padding; 0: fragments come from device memory, and no thread waits for another
//   ATTENTION_ALIGNED     1: rows are contiguous, vectors of 4 aligned, D and Dv unpadded. Needed by STAGED 0
//   ATTENTION_CACHE_Q     1: Q stays in registers; 0: it is read again for every tile of keys
//   ATTENTION_TERMS       1: scores have mask, bias, ALiBi or softcap, or a scale that is not an ordinary positive number
//
// What it still wastes: the matrix product needs exp2 to wait for it and the other way round; only other simdgroups of
// the same core fill the gaps. K and V are read once per 8 or 16 queries.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

#if ATTENTION_STAGED
#define TILE_SPACE threadgroup
#else
#define TILE_SPACE device
#endif
#include "careful.h"
#include "fragments.h"

using namespace tilewise;
using namespace tilewise::msl;

typedef ATTENTION_T T;
constant constexpr int D = ATTENTION_D;
constant constexpr int DV = ATTENTION_DV;
constant constexpr int RB = ATTENTION_ROW_BLOCKS;
constant constexpr int KB = ATTENTION_KEY_BLOCKS;
constant constexpr int ROWS = 8 * RB;                             // queries per simdgroup
constant constexpr int GROUP_ROWS = ROWS * ATTENTION_SIMDGROUPS;  // queries per threadgroup
constant constexpr int PAD = 16 / int(sizeof(T));                 // neighbouring rows of a tile start in other banks
constant constexpr int CACHED_D = ATTENTION_CACHE_Q ? D : 32;
// Scores are dot products and m is in log2 units; with terms both are in natural units.
constant constexpr float UNIT = ATTENTION_TERMS ? M_LOG2E_F : 1.0f;  // log2 units that one unit of m is worth
constant constexpr float GROWTH = 8.0f / UNIT;  // a maximum may lag behind by 2^8: sums stay far from overflow

// What one row block of 8 queries sees, in 8-key blocks: [begin, end), of which [full_begin, full_end) need no mask.
struct Visible {
  int begin, end, full_begin, full_end;
  int first_key, end_key;  // of this lane's query
};

#if ATTENTION_STAGED
struct Tile {
  int first_block;  // its first 8-key block, counted from key 0
  threadgroup const T* k;
  threadgroup const T* v;
};
inline threadgroup const T* tile_key(constant ForwardArguments&, Keys<T>, Tile tile, int j) {
  return tile.k + (j - 8 * tile.first_block) * (D + PAD);
}
inline threadgroup const T* tile_value(constant ForwardArguments&, Keys<T>, Tile tile, int j) {
  return tile.v + (j - 8 * tile.first_block) * (DV + PAD);
}
#else
struct Tile {
  int first_block;
};
// Keys past the end repeat the last one, which is memory that may be read; the mask drops them.
inline device const T* tile_key(constant ForwardArguments& a, Keys<T> keys, Tile, int j) {
  return key_at(a, keys, min(j, int(keys.sequence.k_len) - 1));
}
inline device const T* tile_value(constant ForwardArguments& a, Keys<T> keys, Tile, int j) {
  return value_at(a, keys, min(j, int(keys.sequence.k_len) - 1));
}
#endif

struct State {
  Fragment q[RB][CACHED_D / 8];
  Fragment s[RB][KB];      // scores, then weights
  Fragment o[RB][DV / 8];  // unnormalised
  Rows<float> rows[RB];    // m of this lane's query, l of this lane's columns alone
  Visible visible[RB];
  device const T* query[RB];
  int i[RB];               // position of this lane's query
  ushort row, column;      // of this lane in a fragment
};

inline bool sees(Visible visible, int block) { return visible.begin <= block && block < visible.end; }
inline bool cuts(Visible visible, int block) { return block < visible.full_begin || visible.full_end <= block; }

inline Visible visible_to(core::Band band, int first_row, int lane_row, core::Sequence sequence) {
  const core::Range rows = {first_row, core::min_i64(first_row + 8, sequence.q_len)};
  const core::Range blocks = core::key_tiles(band, rows, sequence.k_len, 8);
  const core::Range full = core::full_key_tiles(band, rows, sequence.k_len, 8);
  const core::Range keys = core::visible_keys(band, first_row + lane_row, sequence.k_len);
  return {int(blocks.begin), int(blocks.end),  // a last block with fewer than 8 keys is cut by the tail
          int(full.begin), int(core::min_i64(full.end, sequence.k_len / 8)), int(keys.begin), int(keys.end)};
}

// One group of Q's columns. Rows past the end repeat the last one; columns past D are zero.
inline void load_query(constant ForwardArguments& a, device const T* query, int d, ushort column, thread Fragment* q) {
  const int width = group_width(D, d);
  if (ATTENTION_ALIGNED) {
    query_fragments(query + d, width, column, q);
    return;
  }
  for (int f = 0; f < width; ++f) {
    const int at = d + width * column + f;
    set(q[f], at < a.head_dim ? float(query[at * a.q.d]) : 0.0f,
        at + width < a.head_dim ? float(query[(at + width) * a.q.d]) : 0.0f);
  }
}

inline void scores(constant ForwardArguments& a, Keys<T> keys, Tile tile, thread State& state) {
  for (int r = 0; r < RB; ++r) {
    for (int b = 0; b < KB; ++b) state.s[r][b] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (int d = 0; d < D; d += 8 * group_width(D, d)) {
    const int at = ATTENTION_CACHE_Q ? d / 8 : 0;
    if (!ATTENTION_CACHE_Q) {
      for (int r = 0; r < RB; ++r) load_query(a, state.query[r], d, state.column, state.q[r]);
    }
    for (int b = 0; b < KB; ++b) {
      const int block = tile.first_block + b;
      if (!sees(state.visible[0], block) && !sees(state.visible[RB - 1], block)) continue;
      Fragment k[4];
      const int j = 8 * block + state.column;
      key_fragments(tile_key(a, keys, tile, j) + d, tile_key(a, keys, tile, j + 1) + d, group_width(D, d), state.row, k);
      for (int r = 0; r < RB; ++r) {
        if (!sees(state.visible[r], block)) continue;
        for (int f = 0; f < group_width(D, d); ++f) {
          simdgroup_multiply_accumulate(state.s[r][b], state.q[r][at + f], k[f], state.s[r][b]);
        }
      }
    }
  }
}

// Selects: whatever an invisible score holds, it becomes -inf.
inline void mask(constant ForwardArguments& a, Terms<T> terms, Tile tile, thread State& state) {
  for (int r = 0; r < RB; ++r) {
    const Visible visible = state.visible[r];
    for (int b = 0; b < KB; ++b) {
      const int block = tile.first_block + b;
      if (!sees(visible, block) || (!ATTENTION_TERMS && !cuts(visible, block))) continue;
      for (int e = 0; e < 2; ++e) {
        const int j = 8 * block + state.column + e;
        float s = state.s[r][b].thread_elements()[e];
        const bool is_visible = visible.first_key <= j && j < visible.end_key;
        if (ATTENTION_TERMS && is_visible) s = score(a, terms, s, state.i[r], j);
        state.s[r][b].thread_elements()[e] = is_visible ? s : -INFINITY;
      }
    }
  }
}

// The largest score of this lane's columns, in units of m.
inline float row_max(int r, Tile tile, float dot_unit, thread State& state) {
  float largest = -INFINITY;
  for (int b = 0; b < KB; ++b) {
    if (!sees(state.visible[r], tile.first_block + b)) continue;
    const float2 s = state.s[r][b].thread_elements();
    largest = Ops<float>::max(Ops<float>::max(largest, s[0]), s[1]);
  }
  return ATTENTION_TERMS ? largest : largest * dot_unit;
}

// Raises a maximum only when a row outgrows it by 2^GROWTH, which after the first tiles hardly happens. The vote only
// decides whether anybody looks; each row decides by its own scores, so that its bits do not depend on its neighbours.
inline void rescale(Tile tile, float dot_unit, thread State& state) {
  float largest[RB];
  bool any_outgrows = false;
  for (int r = 0; r < RB; ++r) {
    largest[r] = row_max(r, tile, dot_unit, state);
    any_outgrows = any_outgrows || largest[r] > state.rows[r].m + GROWTH;
  }
  if (!simd_any(any_outgrows)) return;
  for (int r = 0; r < RB; ++r) {  // the four lanes of a row differ in bits 0 and 3
    largest[r] = Ops<float>::max(largest[r], simd_shuffle_xor(largest[r], 1));
    largest[r] = Ops<float>::max(largest[r], simd_shuffle_xor(largest[r], 8));
    const bool outgrows = largest[r] > state.rows[r].m + GROWTH;
    const float block_max = outgrows ? largest[r] : -INFINITY;
    const Grown<float> grown =
        ATTENTION_TERMS ? grow(state.rows[r], block_max, UNIT) : grow(state.rows[r], block_max);
    state.rows[r] = grown.rows;
    for (int c = 0; c < DV / 8; ++c) state.o[r][c].thread_elements() *= grown.alpha;
  }
}

inline void weights(Tile tile, float dot_unit, thread State& state) {
  for (int r = 0; r < RB; ++r) {
    const float m = state.rows[r].m;
    for (int b = 0; b < KB; ++b) {
      if (!sees(state.visible[r], tile.first_block + b)) continue;
      for (int e = 0; e < 2; ++e) {
        const float s = state.s[r][b].thread_elements()[e];
        const float w = ATTENTION_TERMS ? weight(s, m, UNIT) : dot_weight(s, dot_unit, m);
        state.s[r][b].thread_elements()[e] = w;
        state.rows[r] = add(state.rows[r], w);
      }
    }
  }
}

inline void accumulate(constant ForwardArguments& a, Keys<T> keys, Tile tile, thread State& state) {
  for (int b = 0; b < KB; ++b) {
    const int block = tile.first_block + b;
    if (!sees(state.visible[0], block) && !sees(state.visible[RB - 1], block)) continue;
    TILE_SPACE const T* values = tile_value(a, keys, tile, 8 * block + state.row);
    for (int c = 0; c < DV; c += 16) {
      Fragment v[2];
      value_fragments(values + c, state.column, v);
      for (int r = 0; r < RB; ++r) {
        if (!sees(state.visible[r], block)) continue;
        for (int f = 0; f < 2; ++f) {
          simdgroup_multiply_accumulate(state.o[r][c / 8 + f], state.s[r][b], v[f], state.o[r][c / 8 + f]);
        }
      }
    }
  }
}

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
  device T* o;         // at the first column of this block
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
inline void store(constant ForwardArguments& a, Keys<T> keys, Terms<T> terms, Head head, int r, ushort lane,
                  thread State& state) {
  const int i = state.i[r];
  const bool is_query = i < keys.sequence.q_len;
  Rows<float> rows = state.rows[r];
  rows.l += simd_shuffle_xor(rows.l, 1);
  rows.l += simd_shuffle_xor(rows.l, 8);
  // Without terms a finite score may leave float32's range in log2 units: then a row saw keys, but none weighs.
  const bool saw_keys = state.visible[r].first_key < state.visible[r].end_key;
  bool redo = !(rows.l <= FLT_MAX) || (!ATTENTION_TERMS && rows.l == 0.0f && saw_keys);
  const float factor = inverse_sum(rows);
  for (int c = 0; c < DV / 8; ++c) {
    float2 x = state.o[r][c].thread_elements() * factor;
    redo = redo || !(fabs(x[0]) <= FLT_MAX && fabs(x[1]) <= FLT_MAX);
    set(state.o[r][c], is_query ? x[0] : 0.0f, is_query ? x[1] : 0.0f);
  }
  if (!is_query) rows = no_keys<float>();
  bool redone = false;
  for (int row = 0; row < 8; ++row) {
    if (!simd_any(redo && is_query && state.row == row)) continue;
    const int at = i - state.row + row;
    const core::Range seen = core::visible_keys(band_of_sequence(a, keys.sequence), at, keys.sequence.k_len);
    const Rows<float> careful =
        attend_carefully<T, DV>(a, keys, terms, head.q + at * a.q.s, at, int(seen.begin), int(seen.end),
                                sink_only(head.sink), head.o + at * a.o.s, head.columns, lane);
    if (state.row == row) {
      rows = careful;
      redone = true;
    }
  }
  if (i >= keys.sequence.q_slot) return;
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
                              constant ForwardArguments& a [[buffer(14)]],
                              uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                              uint thread_index [[thread_index_in_threadgroup]],
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
    state.visible[r] = visible_to(band, first_row + 8 * r, state.row, sequence);
    state.rows[r] = sink_only(ATTENTION_TERMS ? head.sink : to_log2_units(head.sink));
    if (state.column != 0) state.rows[r].l = 0.0f;  // lanes of one row are added up at the end
    state.query[r] = head.q + core::max_i64(0, core::min_i64(state.i[r], sequence.q_len - 1)) * a.q.s;
    for (int c = 0; c < DV / 8; ++c) state.o[r][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (int d = 0; ATTENTION_CACHE_Q && sequence.q_len > 0 && d < D; d += 8 * group_width(D, d)) {
      load_query(a, state.query[r], d, state.column, &state.q[r][d / 8]);
    }
  }

  // With staged tiles all simdgroups walk the keys of the whole group, because all meet at the barriers.
  const tw_i64 walk_begin = ATTENTION_STAGED ? work.first_row : first_row;
  const tw_i64 walk_rows = ATTENTION_STAGED ? GROUP_ROWS : ROWS;
  const core::Range walk = {walk_begin, core::min_i64(walk_begin + walk_rows, sequence.q_len)};
  const core::Range blocks = core::key_tiles(band, walk, sequence.k_len, 8);
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
    mask(a, terms, tile, state);
    rescale(tile, dot_unit, state);
    weights(tile, dot_unit, state);
    accumulate(a, keys, tile, state);
#if ATTENTION_STAGED
    threadgroup_barrier(mem_flags::mem_threadgroup);  // write after read: the next tile goes over this one
#endif
  }
  for (int r = 0; r < RB; ++r) store(a, keys, terms, head, r, lane, state);
}
