#pragma once

// The forward pass with queries in the lanes: for every block of keys, every tile of queries that sees some of it takes
// one step of the online softmax. Key blocks are outermost, so a block is widened once for all tiles of an item.
// Dao 2023 (FlashAttention-2), algorithm 1, with the loops exchanged inside an item.

#include "cpu/float_environment.hpp"
#include "cpu/micro_softmax-inl.h"
#include "cpu/padding.hpp"
#include "cpu/simd_call-inl.h"
#include "cpu/simd_visibility-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

template <class T>
struct ForwardCall : Call<T> {
  Layout<T> layout;
};

// Q rows into the lanes, with the sign of the scale; past the end of the tile zeros.
template <class T>
void load_queries(const ForwardCall<T>& call, const Item& item, const Tile<T>& tile, const Scratch<T>& scratch) {
  const Problem& p = call.p;
  const auto bytes = static_cast<tw_i64>(size_of(p.dtype));
  const tw_i64 padded = call.layout.row_elements;
  for (int v = 0; v < tile.vectors; ++v) {
    const tw_i64 i = item.sequence.q_start + tile.first + v * lanes<T>;
    const tw_i64 present = core::min_i64(lanes<T>, tile.rows - v * lanes<T>);
    const tw_i64 at = core::offset_of(call.q, item.sequence.q_item, item.h, i, 0);
    const Rectangle from{static_cast<const char*>(call.buffers.q) + at * bytes, p.dtype, call.q.s, call.q.d};
    T* const to = tile.q + v * lanes<T>;
    if (p.dtype == dtype_of<T> && call.q.d == 1 && present == lanes<T>) {
      rows_to_lanes(elements<T>(from), call.q.s, p.head_dim, to);
      continue;
    }
    load_rows(from, present, p.head_dim, scratch.rows, padded);
    for (tw_i64 r = present; r < lanes<T>; ++r) std::fill_n(scratch.rows + r * padded, p.head_dim, T(0));
    rows_to_lanes(scratch.rows, padded, p.head_dim, to);
  }
  if (!(p.scale < 0)) return;
  const Tag<T> d;
  for (tw_i64 at = 0; at < p.head_dim * tile_lanes<T>; at += lanes<T>) {
    hn::Store(hn::Neg(hn::Load(d, tile.q + at)), d, tile.q + at);
  }
}

// Before any key: the sink if there is one; O = 0.
template <class T>
void reset(const ForwardCall<T>& call, const Item& item, const Units<T>& units, const Tile<T>& tile) {
  const Tag<T> d;
  const Rows<Vec<T>> rows = first_rows<T>(call, item.h, units);
  for (int v = 0; v < tile_vectors; ++v) {
    hn::Store(rows.m, d, tile.m + v * lanes<T>);
    hn::Store(rows.l, d, tile.l + v * lanes<T>);
  }
  std::memset(tile.o, 0, sizeof(T) * static_cast<std::size_t>(call.p.v_dim * tile_lanes<T>));
}

// Keys [keys.begin, keys.end) as row-major K and V in compute type, in place where the tensors already are.
template <class T>
KeyBlock<T> load_keys(const ForwardCall<T>& call, const Item& item, core::Range keys, const Scratch<T>& scratch) {
  const Problem& p = call.p;
  const auto bytes = static_cast<tw_i64>(size_of(p.dtype));
  const tw_i64 row = item.sequence.k_start + keys.begin;
  const auto rows_from = [&](const void* data, core::Strides strides) {
    const tw_i64 at = core::offset_of(strides, item.sequence.k_item, item.kv_head, row, 0);
    return Rectangle{static_cast<const char*>(data) + at * bytes, p.dtype, strides.s, strides.d};
  };
  const Rectangle k = rows_from(call.buffers.k, call.k);
  const Rectangle v = rows_from(call.buffers.v, call.v);
  KeyBlock<T> block{keys.begin, keys.end - keys.begin, elements<T>(k), k.row, elements<T>(v), v.row};
  if (call.layout.copy_k) {
    load_rows(k, block.keys, p.head_dim, scratch.k, p.head_dim);
    block.k = scratch.k;
    block.k_row = p.head_dim;
  }
  if (call.layout.copy_v) {
    load_rows(v, block.keys, p.v_dim, scratch.v, p.v_dim);
    block.v = scratch.v;
    block.v_row = p.v_dim;
  }
  return block;
}

// From dot products to scores in natural units.
template <class T>
HWY_NOINLINE void stage_scores(const ForwardCall<T>& call, const Item& item, const Tile<T>& tile, tw_i64 block_begin,
                               core::Range keys, int v, const Scratch<T>& scratch) {
  using V = Vec<T>;
  const Tag<T> d;
  const ScoreTerms<T> terms = score_terms<T>(call, item.sequence, item.b, item.h);
  const bool biased = call.p.bias.present();
  for (tw_i64 key = keys.begin; key < keys.end; ++key) {
    const tw_i64 at = key * tile_lanes<T> + v * lanes<T>;
    const V bias = biased ? hn::Load(d, scratch.bias + at) : hn::Zero(d);
    const tw_i64 distance = core::alibi_distance(tile.first + v * lanes<T>, block_begin + key, terms.delta);
    const V away = hn::Add(hn::Set(d, static_cast<T>(distance)), hn::Iota(d, T(0)));
    hn::Store(staged_score(terms, call.p, hn::Load(d, scratch.s + at), bias, away), d, scratch.s + at);
  }
}

// Scores of the tile's live vectors, not yet masked.
template <class T>
void scores(const ForwardCall<T>& call, const Item& item, const Units<T>& units, const Tile<T>& tile,
            const KeyBlock<T>& block, const Sight& sight, const Scratch<T>& scratch) {
  for (int i = 0; i < sight.count; ++i) {
    const Segment part = sight.segments[i];
    scores_block(part.end - part.begin, part.last - part.first, block.k + part.begin * block.k_row, block.k_row,
                 tile.q + part.first * lanes<T>, call.p.head_dim,
                 scratch.s + part.begin * tile_lanes<T> + part.first * lanes<T>);
  }
  if (!units.staged) return;
  for (int v = 0; v < tile.vectors; ++v) stage_scores(call, item, tile, block.begin, sight.seen[v], v, scratch);
}

// -inf where a query does not see a key, by scratch.visible and by the band.
template <class T>
void mask(const Item& item, const Tile<T>& tile, const KeyBlock<T>& block, const Sight& sight, bool by_element, int v,
          const Scratch<T>& scratch) {
  using V = Vec<T>;
  const Tag<T> d;
  const core::Range keys = sight.seen[v];
  const auto at = [&](tw_i64 key) { return key * tile_lanes<T> + v * lanes<T>; };
  if (by_element) {
    for (tw_i64 key = keys.begin; key < keys.end; ++key) {
      const auto hidden = hn::Eq(hn::Load(d, scratch.visible + at(key)), hn::Zero(d));
      const V s = hn::Load(d, scratch.s + at(key));
      hn::Store(hn::IfThenElse(hidden, Ops<V>::minus_infinity(), s), d, scratch.s + at(key));
    }
  }
  const core::Range common = sight.common[v];
  const auto edge = [&](tw_i64 begin, tw_i64 end) HWY_ATTR {
    for (tw_i64 key = begin; key < end; ++key) {
      const auto visible = lanes_that_see<T>(item.band, tile.first + v * lanes<T>, block.begin + key);
      const V s = hn::Load(d, scratch.s + at(key));
      hn::Store(hn::IfThenElse(visible, s, Ops<V>::minus_infinity()), d, scratch.s + at(key));
    }
  };
  edge(keys.begin, core::min_i64(common.begin, keys.end));
  edge(core::max_i64(common.end, keys.begin), keys.end);
}

// One step of the online softmax for one tile and one block.
template <class T>
void attend_block(const ForwardCall<T>& call, const Item& item, Care care, const Tile<T>& tile,
                  const KeyBlock<T>& block, const Scratch<T>& scratch) {
  const Problem& p = call.p;
  Sight sight = band_sight(item, tile, block);
  if (sight.count == 0) return;
  if (p.mask.present() || p.bias.present()) {
    sight_by_arrays(p, call.buffers, item, tile, block.begin, call.layout.row_elements, scratch, sight);
    if (sight.count == 0) return;
  }
  if (care != Care::fast) sight_by_element(p, item, tile, block.begin, scratch, sight);
  const Units<T> units = units_of<T>(call, item.h, care);
  scores(call, item, units, tile, block, sight, scratch);
  for (int v = 0; v < tile_vectors; ++v) {
    const tw_i64 at = v * lanes<T>;
    if (v >= tile.vectors || sight.seen[v].begin >= sight.seen[v].end) {
      std::fill_n(scratch.alpha + at, lanes<T>, T(1));
      continue;
    }
    mask(item, tile, block, sight, care != Care::fast || p.mask.present(), v, scratch);
    softmax_block(scratch.s + at, sight.seen[v].begin, sight.seen[v].end, units.log2, units.lift, tile.m + at,
                  tile.l + at, scratch.alpha + at);  // row_max, weights, rescale
  }
  if (care == Care::fast) {
    accumulate_block(p.v_dim, scratch.s, block.v, block.v_row, sight.segments, sight.count, scratch.alpha, tile.o);
  } else {
    const core::Range hull = hull_of(sight);
    accumulate_block_by_selection(p.v_dim, tile.vectors, hull.begin, hull.end, scratch.s, scratch.visible, block.v,
                                  block.v_row, scratch.alpha, tile.o);
  }
}

// All blocks of keys that queries [rows.begin, rows.end) of the item see, for tiles [from, to).
template <class T>
void attend(const ForwardCall<T>& call, const Item& item, tw_i64 from, tw_i64 to, Care care,
            const Scratch<T>& scratch) {
  const auto tile_at = [&](tw_i64 t) { return tile_of(call.p, call.layout, scratch, item.rows, t); };
  for (tw_i64 t = from; t < to; ++t) reset(call, item, units_of<T>(call, item.h, care), tile_at(t));
  const core::Range rows{tile_at(from).first, tile_at(to - 1).first + tile_at(to - 1).rows};
  const core::Range blocks = core::key_tiles(item.band, rows, item.sequence.k_len, key_block);
  for (tw_i64 b = blocks.begin; b < blocks.end; ++b) {
    const core::Range keys = core::split_range(item.sequence.k_len, key_block, b);
    const KeyBlock<T> block = load_keys(call, item, keys, scratch);
    for (tw_i64 t = from; t < to; ++t) attend_block(call, item, care, tile_at(t), block, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
