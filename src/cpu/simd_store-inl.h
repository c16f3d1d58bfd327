#pragma once

// The end of a tile: O / l, the check that everything is finite, the careful path where it is not, and the way back to
// row-major memory.

#include "cpu/simd_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

// O becomes O / l. ok[lane] tells whether the query's result can stand: O, l and the maximum in natural units are
// finite.
template <class T>
void normalise(const ForwardCall<T>& call, const Units<T>& units, const Tile<T>& tile, bool* ok) {
  using V = Vec<T>;
  const Tag<T> d;
  for (int v = 0; v < tile.vectors; ++v) {
    const tw_i64 at = v * lanes<T>;
    const Rows<V> rows{hn::Load(d, tile.m + at), hn::Load(d, tile.l + at)};
    const V inverse = inverse_sum(rows);
    V bad = not_finite(units, rows);  // NaN as soon as one term is not finite, else 0
    for (tw_i64 c = 0; c < call.p.v_dim; ++c) {
      T* const o = tile.o + c * tile_lanes<T> + at;
      // Adding 0 turns -0 into 0: its sign would tell how many invisible keys were skipped.
      const V x = hn::MulAdd(hn::Load(d, o), inverse, hn::Zero(d));
      bad = hn::MulAdd(x, hn::Zero(d), bad);
      hn::Store(x, d, o);
    }
    HWY_ALIGN T finite[lanes<T>];
    hn::Store(bad, d, finite);
    for (int lane = 0; lane < lanes<T>; ++lane) ok[at + lane] = finite[lane] == 0;
  }
}

// O and LSE of the tile's rows to memory: all rows, or those with only[row].
template <class T>
void store(const ForwardCall<T>& call, const Item& item, const Units<T>& units, const Tile<T>& tile, const bool* only,
           const Scratch<T>& scratch) {
  const Problem& p = call.p;
  const auto bytes = static_cast<tw_i64>(size_of(p.dtype));
  for (int v = 0; v < tile.vectors; ++v) {
    const tw_i64 row = v * lanes<T>;
    const tw_i64 i = item.sequence.q_start + tile.first + row;
    const tw_i64 present = core::min_i64(lanes<T>, tile.rows - row);
    const tw_i64 at = core::offset_of(call.o, item.sequence.q_item, item.h, i, 0);
    const Target to{static_cast<char*>(call.buffers.o) + at * bytes, p.dtype, call.o.s, call.o.d};
    if (p.dtype == dtype_of<T> && to.column == 1 && present == lanes<T> && only == nullptr) {
      lanes_to_rows(tile.o + row, p.v_dim, static_cast<T*>(to.data), to.row);
    } else {
      lanes_to_rows(tile.o + row, p.v_dim, scratch.rows, call.layout.row_elements);
      for (tw_i64 r = 0; r < present; ++r) {
        if (only != nullptr && !only[row + r]) continue;
        store_row(scratch.rows + r * call.layout.row_elements, p.v_dim, to, r);
      }
    }
    if (!p.lse.present()) continue;
    const Tag<T> d;
    HWY_ALIGN T values[lanes<T>];
    hn::Store(lse(Rows<Vec<T>>{hn::Load(d, tile.m + row), hn::Load(d, tile.l + row)}, hn::Set(d, units.natural)), d,
              values);
    const tw_i64 lse_at = core::offset_of(call.lse, item.sequence.q_item, item.h, i, 0);
    for (tw_i64 r = 0; r < present; ++r) {
      if (only == nullptr || only[row + r]) static_cast<T*>(call.buffers.lse)[lse_at + r * call.lse.s] = values[r];
    }
  }
}

template <class T>
bool all_of(const bool* ok, const Tile<T>& tile) {
  for (tw_i64 r = 0; r < tile.rows; ++r) {
    if (!ok[r]) return false;
  }
  return true;
}

// Finishes tile t of an item: normalise and store, with the careful path for what is not finite. A row's bits do not
// depend on whether its neighbours needed it.
template <class T>
void finish(const ForwardCall<T>& call, const Item& item, tw_i64 t, const Scratch<T>& scratch) {
  const Tile<T> tile = tile_of(call.p, call.layout, scratch, item.rows, t);
  const Units<T> units = units_of<T>(call, item.h, Care::fast);
  bool ok[tile_lanes<T>];
  normalise(call, units, tile, ok);
  if (all_of(ok, tile)) return store(call, item, units, tile, nullptr, scratch);
  attend(call, item, t, t + 1, Care::by_selection, scratch);
  normalise(call, units, tile, ok);
  store(call, item, units, tile, nullptr, scratch);
  if (all_of(ok, tile)) return;
  const Units<T> extreme = units_of<T>(call, item.h, Care::extreme);
  bool better[tile_lanes<T>];
  attend(call, item, t, t + 1, Care::extreme, scratch);
  normalise(call, extreme, tile, better);
  for (tw_i64 r = 0; r < tile.rows; ++r) better[r] = better[r] && !ok[r];
  store(call, item, extreme, tile, better, scratch);
}

// One work item: `index` counts heads of items of blocks of queries, the last block first (with a causal band it has
// the most keys, and the shortest tasks should come last).
template <class T>
void run_item(const ForwardCall<T>& call, tw_i64 blocks, tw_i64 index, int worker, void* workspace) {
  const Problem& p = call.p;
  const Scratch<T> scratch = scratch_of(p, call.layout, workspace, worker);
  const tw_i64 per_block = p.batch * p.q_heads;
  const tw_i64 b = index % per_block / p.q_heads;
  const tw_i64 h = index % p.q_heads;
  const core::Sequence sequence = sequence_of(p, call.buffers, b);
  const core::Range slot = core::split_range(sequence.q_slot, call.layout.item_queries, blocks - 1 - index / per_block);
  const core::Range rows{slot.begin, core::clamp_i64(sequence.q_len, slot.begin, slot.end)};
  const Item item{sequence, band_for(p, sequence), b, h, core::kv_head_of(h, p.q_heads, p.kv_heads), rows};
  const tw_i64 tiles = core::ceil_div(rows.end - rows.begin, tile_lanes<T>);
  for (tw_i64 t = 0; t < tiles; ++t) {
    load_queries(call, item, tile_of(p, call.layout, scratch, rows, t), scratch);
  }
  if (tiles > 0) attend(call, item, 0, tiles, Care::fast, scratch);
  for (tw_i64 t = 0; t < tiles; ++t) finish(call, item, t, scratch);
  cpu::clear_rows(p, call.buffers, sequence.q_item, h, {sequence.q_start + rows.end, sequence.q_start + slot.end});
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
