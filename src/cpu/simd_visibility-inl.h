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
};

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
  Segment segments[2 * tile_vectors];
  int count;  // of segments; 0: nothing is visible
};

inline core::Range hull_of(const Sight& sight) {
  return {sight.segments[0].begin, sight.segments[sight.count - 1].end};
}

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
// into `to` [key_block, tile_lanes]. Rows past the end of the tile become 0. An element that is `hidden` masks its
// pair; the result is `keys` without hidden ends where all queries share one row.
template <class T>
HWY_NOINLINE core::Range load_pairs(const TensorSpec& spec, const void* data, const Item& item, const Tile<T>& tile,
                                    tw_i64 block_begin, core::Range keys, T hidden, tw_i64 row_elements, T* rows,
                                    T* to) {
  const Tag<T> d;
  const core::Strides strides = strides_of(spec);
  const auto bytes = static_cast<tw_i64>(size_of(spec.dtype));
  const tw_i64 count = keys.end - keys.begin;
  const auto from = [&](tw_i64 i) {
    const tw_i64 at = core::offset_of(strides, item.b, item.h, i, block_begin + keys.begin);
    return Rectangle{static_cast<const char*>(data) + at * bytes, spec.dtype, strides.s, strides.d};
  };
  if (strides.s == 0) {
    load_rows(from(0), 1, count, rows, row_elements);
    core::Range shown{0, count};
    while (shown.begin < shown.end && rows[shown.begin] == hidden) ++shown.begin;
    while (shown.begin < shown.end && rows[shown.end - 1] == hidden) --shown.end;
    for (tw_i64 key = shown.begin; key < shown.end; ++key) {
      const Vec<T> x = hn::Set(d, rows[key]);
      T* const line = to + (keys.begin + key) * tile_lanes<T>;
      for (int v = 0; v < tile.vectors; ++v) hn::Store(x, d, line + v * lanes<T>);
    }
    return {keys.begin + shown.begin, keys.begin + shown.end};
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
    for (tw_i64 r = present; r < lanes<T>; ++r) std::fill_n(rows + r * row_elements, count, T(0));
    rows_to_lanes(rows, row_elements, count, target);
  }
  return keys;
}

// Whether an element of keys [keys.begin, keys.end) in vector v of `pairs` is not `hidden`.
template <class T>
HWY_INLINE bool any_shown(const T* pairs, core::Range keys, int v, T hidden) {
  const Tag<T> d;
  auto shown = hn::FirstN(d, 0);
  for (tw_i64 key = keys.begin; key < keys.end; ++key) {
    shown = hn::Or(shown, differs(hn::Load(d, pairs + key * tile_lanes<T> + v * lanes<T>), hn::Set(d, hidden)));
  }
  return !hn::AllFalse(d, shown);
}

// Loads the mask into scratch.visible and the bias into scratch.bias, and takes from `sight` what they hide at its
// edges: hidden keys when all queries share a row, and vectors of queries that see nothing of the block.
template <class T>
HWY_NOINLINE void sight_by_arrays(const Problem& p, const Buffers& buffers, const Item& item, const Tile<T>& tile,
                                  tw_i64 block_begin, tw_i64 row_elements, const Scratch<T>& scratch, Sight& sight) {
  constexpr T minus_infinity = -std::numeric_limits<T>::infinity();
  core::Range hull = hull_of(sight);
  if (p.mask.present()) {
    hull = load_pairs(p.mask, buffers.mask, item, tile, block_begin, hull, T(0), row_elements, scratch.rows,
                      scratch.visible);
  }
  if (p.bias.present()) {
    hull = load_pairs(p.bias, buffers.bias, item, tile, block_begin, hull, minus_infinity, row_elements, scratch.rows,
                      scratch.bias);
  }
  const auto sees_something = [&](int v) {
    const core::Range keys = sight.seen[v];
    return keys.begin < keys.end && (!p.mask.present() || any_shown(scratch.visible, keys, v, T(0))) &&
           (!p.bias.present() || any_shown(scratch.bias, keys, v, minus_infinity));
  };
  for (int v = 0; v < tile.vectors; ++v) {
    core::Range& keys = sight.seen[v];
    keys.begin = core::clamp_i64(keys.begin, hull.begin, hull.end);
    keys.end = core::clamp_i64(keys.end, keys.begin, hull.end);
  }
  int first = 0;
  int last = tile.vectors;
  while (first < last && !sees_something(first)) ++first;
  while (first < last && !sees_something(last - 1)) --last;
  for (int v = 0; v < tile.vectors; ++v) {
    if (v < first || v >= last) sight.seen[v].end = sight.seen[v].begin;
  }
  cut_into_segments(sight, tile.vectors);
}

// Decides every pair of the hull of `sight` in scratch.visible, for the careful path.
template <class T>
HWY_NOINLINE void sight_by_element(const Problem& p, const Item& item, const Tile<T>& tile, tw_i64 block_begin,
                                   const Scratch<T>& scratch, const Sight& sight) {
  const Tag<T> d;
  const core::Range hull = hull_of(sight);
  for (tw_i64 key = hull.begin; key < hull.end; ++key) {
    for (int v = 0; v < tile.vectors; ++v) {
      const tw_i64 at = key * tile_lanes<T> + v * lanes<T>;
      Vec<T> visible = p.mask.present() ? hn::Load(d, scratch.visible + at) : Ops<Vec<T>>::one();
      if (p.bias.present()) {
        const auto hidden = hn::Eq(hn::Load(d, scratch.bias + at), Ops<Vec<T>>::minus_infinity());
        visible = hn::IfThenElse(hidden, hn::Zero(d), visible);
      }
      const auto inside = lanes_that_see<T>(item.band, tile.first + v * lanes<T>, block_begin + key);
      hn::Store(hn::IfThenElseZero(inside, visible), d, scratch.visible + at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
