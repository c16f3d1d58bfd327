#pragma once

// Which keys of a block the queries of a tile see. Band and lengths give key ranges per vector of queries, so that dead
// vectors are skipped and only the edges are masked by element; mask and bias arrays, and the careful path, decide
// element by element in Scratch::visible.

#include "cpu/micro_transpose-inl.h"
#include "cpu/simd_rows-inl.h"
#include "cpu/simd_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

// What a work item attends with: one head's queries [rows.begin, rows.end) of one sequence.
struct Item {
  core::Sequence sequence;
  core::Band band;
  tw_i64 b;
  tw_i64 h;
  tw_i64 kv_head;
  core::Range rows;
  bool staged;  // this head's sink is too large for plain scores
};

template <class T>
HWY_INLINE T sink_of(const Problem& p, const Buffers& buffers, tw_i64 h) {
  return static_cast<T>(static_cast<const float*>(buffers.sinks)[h * p.sinks.strides[0]]);
}

// A block of keys in compute type: row r of k is at k + r * k_row and belongs to key `begin` + r.
template <class T>
struct KeyBlock {
  tw_i64 begin;
  tw_i64 keys;
  const T* k;
  tw_i64 k_row;
  const T* v;
  tw_i64 v_row;
};

// Keys of a block, counted from its beginning, that matter to a tile.
struct Sight {
  core::Range seen[tile_vectors];    // by some query of the vector; grows with the vector, as the band does
  core::Range common[tile_vectors];  // by all of its queries
  bool by_element;                   // Scratch::visible says which; `seen` is then one hull for all vectors
  Segment segments[2 * tile_vectors];
  int count;  // of segments; 0: nothing is visible
};

HWY_INLINE core::Range within(core::Range keys, tw_i64 block_begin, tw_i64 block_keys) {
  const tw_i64 begin = core::clamp_i64(keys.begin - block_begin, 0, block_keys);
  return {begin, core::clamp_i64(keys.end - block_begin, begin, block_keys)};
}

// Cuts the block at every beginning and end of a vector's range: between two cuts the live vectors are neighbours.
inline void cut_into_segments(Sight& sight, int vectors) {
  tw_i64 cuts[2 * tile_vectors];
  int n = 0;
  for (int v = 0; v < vectors; ++v) {
    for (const tw_i64 cut : {sight.seen[v].begin, sight.seen[v].end}) {
      int at = n++;
      for (; at > 0 && cuts[at - 1] > cut; --at) cuts[at] = cuts[at - 1];
      cuts[at] = cut;
    }
  }
  sight.count = 0;
  for (int i = 0; i + 1 < n; ++i) {
    if (cuts[i] == cuts[i + 1]) continue;
    Segment segment{cuts[i], cuts[i + 1], vectors, 0};
    for (int v = 0; v < vectors; ++v) {
      if (sight.seen[v].begin > cuts[i] || sight.seen[v].end < cuts[i + 1]) continue;
      segment.first = segment.first < v ? segment.first : v;
      segment.last = v + 1;
    }
    if (segment.first < segment.last) sight.segments[sight.count++] = segment;
  }
}

template <class T>
inline Sight band_sight(const Item& item, const Tile<T>& tile, const KeyBlock<T>& block) {
  Sight sight{};
  for (int v = 0; v < tile.vectors; ++v) {
    const tw_i64 begin = tile.first + v * lanes<T>;
    const core::Range queries{begin, core::min_i64(begin + lanes<T>, tile.first + tile.rows)};
    const tw_i64 k_len = item.sequence.k_len;
    sight.seen[v] = within(core::visible_keys_of(item.band, queries, k_len), block.begin, block.keys);
    sight.common[v] = within(core::common_keys_of(item.band, queries, k_len), block.begin, block.keys);
    if (sight.common[v].begin >= sight.common[v].end) sight.common[v] = {sight.seen[v].end, sight.seen[v].end};
  }
  cut_into_segments(sight, tile.vectors);
  return sight;
}

// Lane l holds query `first` + l: which of them see key j?
template <class T>
HWY_INLINE hn::Mask<Tag<T>> lanes_that_see(core::Band band, tw_i64 first, tw_i64 j) {
  const Tag<T> d;
  const tw_i64 from = core::clamp_i64(core::subtract_saturated(j - first, band.hi), -1, lanes<T>);
  const tw_i64 to = core::clamp_i64(core::subtract_saturated(j - first, band.lo), -1, lanes<T>);
  const Vec<T> lane = hn::Iota(d, T(0));
  return hn::And(hn::Ge(lane, hn::Set(d, static_cast<T>(from))), hn::Le(lane, hn::Set(d, static_cast<T>(to))));
}

// A mask or bias array [B, Hq, Sq, Sk] for the pairs of a tile and keys [keys.begin, keys.end) of a block, transposed
// into `to` [key_block, tile_lanes]. Rows past the end of the tile become 0.
template <class T>
HWY_NOINLINE void load_pairs(const TensorSpec& spec, const void* data, const Item& item, const Tile<T>& tile,
                             tw_i64 block_begin, core::Range keys, tw_i64 row_elements, T* rows, T* to) {
  const Tag<T> d;
  const core::Strides strides = strides_of(spec);
  const auto bytes = static_cast<tw_i64>(size_of(spec.dtype));
  const tw_i64 count = keys.end - keys.begin;
  const auto from = [&](tw_i64 i) {
    const tw_i64 at = core::offset_of(strides, item.b, item.h, i, block_begin + keys.begin);
    return Rectangle{static_cast<const char*>(data) + at * bytes, spec.dtype, strides.s, strides.d};
  };
  if (strides.s == 0) {  // one row for all queries
    load_rows(from(0), 1, count, rows, row_elements);
    for (tw_i64 key = 0; key < count; ++key) {
      const Vec<T> x = hn::Set(d, rows[key]);
      T* const line = to + (keys.begin + key) * tile_lanes<T>;
      for (int v = 0; v < tile.vectors; ++v) hn::Store(x, d, line + v * lanes<T>);
    }
    return;
  }
  for (int v = 0; v < tile.vectors; ++v) {
    const tw_i64 present = core::min_i64(lanes<T>, tile.rows - v * lanes<T>);
    const Rectangle source = from(tile.first + v * lanes<T>);
    T* const target = to + keys.begin * tile_lanes<T> + v * lanes<T>;
    if (spec.dtype == dtype_of<T> && strides.d == 1 && present == lanes<T>) {
      rows_to_lanes(elements<T>(source), strides.s, count, target);
      continue;
    }
    load_rows(source, present, count, rows, row_elements);
    for (tw_i64 r = present; r < lanes<T>; ++r)
      std::memset(rows + r * row_elements, 0, sizeof(T) * static_cast<std::size_t>(count));
    rows_to_lanes(rows, row_elements, count, target);
  }
}

// Decides every pair of the hull of `sight` in scratch.visible, loads the bias, and shrinks the hull to what is seen.
template <class T>
HWY_NOINLINE void sight_by_element(const Problem& p, const Buffers& buffers, const Item& item, const Tile<T>& tile,
                                   tw_i64 block_begin, tw_i64 row_elements, const Scratch<T>& scratch, Sight& sight) {
  const Tag<T> d;
  core::Range hull{sight.segments[0].begin, sight.segments[sight.count - 1].end};
  if (p.mask.present()) {
    load_pairs(p.mask, buffers.mask, item, tile, block_begin, hull, row_elements, scratch.rows, scratch.visible);
  }
  if (p.bias.present()) {
    load_pairs(p.bias, buffers.bias, item, tile, block_begin, hull, row_elements, scratch.rows, scratch.bias);
  }
  tw_i64 first = hull.end;
  tw_i64 last = hull.begin;
  for (tw_i64 key = hull.begin; key < hull.end; ++key) {
    bool any = false;
    for (int v = 0; v < tile.vectors; ++v) {
      const tw_i64 at = key * tile_lanes<T> + v * lanes<T>;
      Vec<T> visible = p.mask.present() ? hn::Load(d, scratch.visible + at) : Ops<Vec<T>>::one();
      if (key < sight.common[v].begin || key >= sight.common[v].end) {
        const auto inside = lanes_that_see<T>(item.band, tile.first + v * lanes<T>, block_begin + key);
        visible = hn::IfThenElseZero(inside, visible);
      }
      if (p.bias.present()) {
        const auto masked = hn::Eq(hn::Load(d, scratch.bias + at), Ops<Vec<T>>::minus_infinity());
        visible = hn::IfThenElse(masked, hn::Zero(d), visible);
      }
      hn::Store(visible, d, scratch.visible + at);
      any = any || !hn::AllTrue(d, hn::Eq(visible, hn::Zero(d)));
    }
    if (!any) continue;
    first = core::min_i64(first, key);
    last = key + 1;
  }
  sight.by_element = true;
  for (int v = 0; v < tile.vectors; ++v) sight.seen[v] = {first, last};
  cut_into_segments(sight, first < last ? tile.vectors : 0);
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
