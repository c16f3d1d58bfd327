#pragma once

// The steps of attention on 8x8 matrix units, for a simdgroup that keeps the scores, softmax state and output of its
// queries in registers: scores, mask, row_max, rescale, weights, accumulate. forward.metal and decode.metal walk the
// keys. Constants ATTENTION_*: see forward.metal.

#if ATTENTION_STAGED
#define TILE_SPACE threadgroup
#else
#define TILE_SPACE device
#endif
#include "careful.h"
#include "fragments.h"

namespace tilewise {
namespace msl {

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
  Terms<T> terms[RB];
  int i[RB];           // position of this lane's query
  ushort row, column;  // of this lane in a fragment
};

inline bool sees(Visible visible, int block) { return visible.begin <= block && block < visible.end; }
inline bool cuts(Visible visible, int block) { return block < visible.full_begin || visible.full_end <= block; }

// `queries`: positions of the row block's queries; i: that of this lane's.
inline Visible visible_to(core::Band band, core::Range queries, int i, core::Sequence sequence) {
  const core::Range rows = {queries.begin, core::min_i64(queries.end, sequence.q_len)};
  const core::Range blocks = core::key_tiles(band, rows, sequence.k_len, 8);
  const core::Range full = core::full_key_tiles(band, rows, sequence.k_len, 8);
  core::Range keys = {0, 0};  // padding sees nothing: it has no row in masks and biases
  if (i < sequence.q_len) keys = core::visible_keys(band, i, sequence.k_len);
  const tw_i64 full_end = core::min_i64(full.end, sequence.k_len / 8);  // a last block of fewer than 8 keys is cut
  return {int(blocks.begin), int(blocks.end), int(full.begin), int(full_end), int(keys.begin), int(keys.end)};
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
      key_fragments(tile_key(a, keys, tile, j) + d, tile_key(a, keys, tile, j + 1) + d, group_width(D, d), state.row,
                    k);
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
inline void mask(constant ForwardArguments& a, Tile tile, thread State& state) {
  for (int r = 0; r < RB; ++r) {
    const Visible visible = state.visible[r];
    for (int b = 0; b < KB; ++b) {
      const int block = tile.first_block + b;
      if (!sees(visible, block) || (!ATTENTION_TERMS && !cuts(visible, block))) continue;
      for (int e = 0; e < 2; ++e) {
        const int j = 8 * block + state.column + e;
        float s = state.s[r][b].thread_elements()[e];
        const bool is_visible = visible.first_key <= j && j < visible.end_key;
        if (ATTENTION_TERMS && is_visible) s = score(a, state.terms[r], s, state.i[r], j);
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

// [excerpt: rescale]
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
    const Grown<float> grown = ATTENTION_TERMS ? grow(state.rows[r], block_max, UNIT) : grow(state.rows[r], block_max);
    state.rows[r] = grown.rows;
    for (int c = 0; c < DV / 8; ++c) state.o[r][c].thread_elements() *= grown.alpha;
  }
}
// [end]

// [excerpt: weights]
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
// [end]

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

// Empties the state of row block r and, where Q is cached, loads it. A lane's query, i and terms are set before.
inline void start(constant ForwardArguments& a, int r, bool has_queries, float sink, thread State& state) {
  state.rows[r] = sink_only(sink);
  if (state.column != 0) state.rows[r].l = 0.0f;  // the lanes of a row are added up at the end
  for (int c = 0; c < DV / 8; ++c) state.o[r][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int d = 0; ATTENTION_CACHE_Q && has_queries && d < D; d += 8 * group_width(D, d)) {
    load_query(a, state.query[r], d, state.column, &state.q[r][d / 8]);
  }
}

struct Finished {
  Rows<float> rows;  // of the whole row
  bool redo;         // this lane saw a reason to compute its row again
};

// Adds up the lanes of a row and divides its output by the sum.
inline Finished finish(int r, thread State& state) {
  Rows<float> rows = state.rows[r];
  rows.l += simd_shuffle_xor(rows.l, 1);
  rows.l += simd_shuffle_xor(rows.l, 8);
  const int keys = state.visible[r].end_key - state.visible[r].first_key;
  bool redo = !(rows.l <= FLT_MAX);
  // Without terms a finite score may leave float32's range in log2 units: then a row saw keys, but none weighs. And the
  // weight of a single key is 1 only up to rounding, while its value should come out as it is.
  if (!ATTENTION_TERMS) redo = redo || (rows.l == 0.0f && keys > 0) || keys == 1;
  const float divisor = Ops<float>::select_equal(rows.l, 0.0f, 1.0f, rows.l);
  for (int c = 0; c < DV / 8; ++c) {
    const float2 x = state.o[r][c].thread_elements();
    set(state.o[r][c], x[0] / divisor, x[1] / divisor);
    redo = redo || !(fabs(x[0]) <= FLT_MAX && fabs(x[1]) <= FLT_MAX);
  }
  return {rows, redo};
}

}  // namespace msl
}  // namespace tilewise
