#pragma once

// What a forward call looks like to the SIMD kernels: the shape of the work, the scratch of one worker, a tile of
// queries.

#include "core/tile_range.h"
#include "cpu/micro_products-inl.h"
#include "cpu/simd_call-inl.h"
#include "kernel/kernel.hpp"
#include "kernel/sequence.hpp"

// No HWY_BEFORE_NAMESPACE here: sizes are asked for on machines that lack the instruction set, too.
namespace tilewise {
namespace HWY_NAMESPACE {

// Keys in a block: a multiple of panel_rows, between 48 and 96. Blocks begin at multiples of it from key 0 on and are
// the grain of summation: a fresh accumulator per block halves the error of a carried one. 96 x 64 float scores are 24
// KiB, half of a 48 KiB L1; 192 keys were 3 to 5% slower.
inline constexpr tw_i64 key_block = 96;

// Queries of one work item: many share a widened key block, few keep all threads busy. The bits do not depend on it.
struct ItemRow {
  tw_i64 queries_from;  // for q_len from here on
  tw_i64 queries;       // per item
};
inline constexpr ItemRow item_table[] = {
    {2048, 256},  // at least 8 items a head; K and V of 256 x 96 pairs pass L2 once per 6 MFLOP
    {512, 128},   // 4 items or more a head
    {0, 64},      // N = 256 still gives 4
};
inline constexpr tw_i64 tile_state_bytes = tw_i64{512} * 1024;  // Q and O of an item stay in a quarter of a 2 MiB L2

// The scratch of one worker; every array is 64-byte aligned.
template <class T>
struct Scratch {
  T* tiles;    // [tiles of an item] x {q [D, lanes], o [Dv, lanes], m, l [lanes]}
  T* s;        // [key_block, tile_lanes] scores, then weights
  T* visible;  // [key_block, tile_lanes] 1 or 0, where visibility is decided element by element
  T* bias;     // [key_block, tile_lanes]
  T* alpha;    // [tile_lanes]
  T* k;        // [key_block, D] when K is not read in place
  T* v;        // [key_block, Dv] likewise
  T* rows;     // [L, max(D, Dv, key_block)] rows on their way from or to memory
};

// A tile of up to tile_lanes queries.
template <class T>
struct Tile {
  tw_i64 first;  // query of lane 0, inside the sequence
  tw_i64 rows;   // queries, the others are padding
  int vectors;   // that hold a query
  T* q;
  T* o;
  T* m;
  T* l;
};

// Sizes that depend on the problem alone.
template <class T>
struct Layout {
  tw_i64 item_queries;
  tw_i64 tiles;  // per item
  tw_i64 tile_elements;
  bool copy_k;
  bool copy_v;
  tw_i64 row_elements;  // of a row in Scratch::rows
  tw_i64 elements;      // of a worker's scratch
};

template <class T>
inline constexpr tw_i64 aligned_elements(tw_i64 n) {
  return core::ceil_div(n, lanes<T>) * lanes<T>;
}

template <class T>
inline Layout<T> layout_of(const Problem& p) {
  Layout<T> layout{};
  tw_i64 queries = 0;
  for (const ItemRow& row : item_table) {
    if (p.q_len < row.queries_from) continue;
    queries = row.queries;
    break;
  }
  layout.tile_elements = (p.head_dim + p.v_dim + 2) * tile_lanes<T>;
  const tw_i64 fitting = tile_state_bytes / (layout.tile_elements * static_cast<tw_i64>(sizeof(T)));
  layout.tiles = core::clamp_i64(core::ceil_div(queries, tile_lanes<T>), 1, core::max_i64(1, fitting));
  layout.item_queries = layout.tiles * tile_lanes<T>;
  layout.copy_k = p.dtype != dtype_of<T> || p.k.strides[3] != 1;
  layout.copy_v = p.dtype != dtype_of<T> || p.v.strides[3] != 1;
  layout.row_elements = aligned_elements<T>(core::max_i64(key_block, core::max_i64(p.head_dim, p.v_dim)));
  layout.elements = layout.tiles * layout.tile_elements + 3 * key_block * tile_lanes<T> + tile_lanes<T> +
                    (layout.copy_k ? aligned_elements<T>(key_block * p.head_dim) : 0) +
                    (layout.copy_v ? aligned_elements<T>(key_block * p.v_dim) : 0) + lanes<T> * layout.row_elements;
  layout.elements = core::ceil_div(layout.elements, 64) * 64;  // workers never share a cache line
  return layout;
}

template <class T>
inline Scratch<T> scratch_of(const Problem& p, const Layout<T>& layout, void* workspace, int worker) {
  T* at = static_cast<T*>(workspace) + worker * layout.elements;
  const auto take = [&at](tw_i64 n) {
    T* const begin = at;
    at += aligned_elements<T>(n);
    return begin;
  };
  Scratch<T> scratch{};
  scratch.tiles = take(layout.tiles * layout.tile_elements);
  scratch.s = take(key_block * tile_lanes<T>);
  scratch.visible = take(key_block * tile_lanes<T>);
  scratch.bias = take(key_block * tile_lanes<T>);
  scratch.alpha = take(tile_lanes<T>);
  scratch.k = layout.copy_k ? take(key_block * p.head_dim) : nullptr;
  scratch.v = layout.copy_v ? take(key_block * p.v_dim) : nullptr;
  scratch.rows = take(lanes<T> * layout.row_elements);
  return scratch;
}

// Tile `index` of the queries [rows.begin, rows.end) of an item.
template <class T>
inline Tile<T> tile_of(const Problem& p, const Layout<T>& layout, const Scratch<T>& scratch, core::Range rows,
                       tw_i64 index) {
  Tile<T> tile{};
  tile.first = rows.begin + index * tile_lanes<T>;
  tile.rows = core::min_i64(tile_lanes<T>, rows.end - tile.first);
  tile.vectors = static_cast<int>(core::ceil_div(tile.rows, lanes<T>));
  tile.q = scratch.tiles + index * layout.tile_elements;
  tile.o = tile.q + p.head_dim * tile_lanes<T>;
  tile.m = tile.o + p.v_dim * tile_lanes<T>;
  tile.l = tile.m + tile_lanes<T>;
  return tile;
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
