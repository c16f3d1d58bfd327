#pragma once

// Few queries over many keys: how the work is cut, and the scratch of one worker. The query heads that share a KV head
// are rows of one group, so that K and V are read once for all of them.

#include "core/tile_range.h"
#include "cpu/micro_dots-inl.h"
#include "kernel/sequence.hpp"

// No HWY_BEFORE_NAMESPACE here: sizes are asked for on machines that lack the instruction set, too.
namespace tilewise {
namespace HWY_NAMESPACE {

inline constexpr tw_i64 few_queries = 64;         // Sq up to which this kernel takes a problem: one task of the other's
inline constexpr tw_i64 group_rows = 32;          // rows (query head, query) that share a pass over K and V
inline constexpr tw_i64 decode_block = 128;       // keys per step of the softmax: K and V of D = 128 are 128 KiB
inline constexpr tw_i64 least_chunk = 512;        // keys of a task: 512 KiB of K and V at D = 128, some 20 us
inline constexpr tw_i64 most_chunks = 64;         // of one sequence: enough for 64 cores from one KV head
inline constexpr tw_i64 partial_bytes = 1 << 20;  // of one group's partial results, and
inline constexpr tw_i64 wave_bytes = 2 << 20;     // of all groups in flight
inline constexpr tw_i64 rows_to_widen = 8;        // from here on 16-bit blocks are widened once, not per pair of rows

template <class T>
struct DecodeScratch {
  T* q;        // [group_rows, depth]
  T* o;        // [group_rows, columns]
  T* s;        // [group_rows, decode_block]
  T* visible;  // [group_rows, decode_block], on the careful path
  T* mask;     // [decode_block] one row of the arrays
  T* bias;     // [decode_block]
  T* m;        // [group_rows]
  T* l;
  T* alpha;
  T* total;  // [columns] a merged row
  T* k;      // [decode_block, depth] when K is not read in place
  T* v;      // [decode_block, columns] likewise
};

template <class T>
struct DecodeLayout {
  tw_i64 group;       // query heads per KV head
  tw_i64 row_groups;  // per KV head
  tw_i64 depth;       // D and Dv rounded up to whole vectors
  tw_i64 columns;
  bool copy_k;
  bool copy_v;
  tw_i64 partial;         // elements of one partial row: its O, m, l
  tw_i64 chunk_limit;     // per sequence
  tw_i64 group_partials;  // elements of one group's partials
  tw_i64 wave;            // groups in flight
  tw_i64 worker_elements;
};

template <class T>
inline tw_i64 whole_vectors(tw_i64 n) {
  return core::ceil_div(n, lanes<T>) * lanes<T>;
}

template <class T>
inline DecodeLayout<T> decode_layout_of(const Problem& p) {
  DecodeLayout<T> layout{};
  layout.group = p.kv_heads > 0 ? p.q_heads / p.kv_heads : 0;
  const tw_i64 rows = layout.group * p.q_len;
  layout.row_groups = core::ceil_div(rows, group_rows);
  layout.depth = whole_vectors<T>(p.head_dim);
  layout.columns = whole_vectors<T>(core::max_i64(1, p.v_dim));
  const bool widen = size_of(p.dtype) == 2 && rows >= rows_to_widen;
  layout.copy_k = widen || p.k.strides[3] != 1 || layout.depth != p.head_dim;
  layout.copy_v = widen || p.v.strides[3] != 1 || layout.columns != p.v_dim;
  if (size_of(p.dtype) == 2) layout.copy_k = layout.copy_v = layout.copy_k || layout.copy_v;
  layout.partial = layout.columns + lanes<T>;
  const tw_i64 rows_at_once = core::clamp_i64(rows, 1, group_rows);
  const tw_i64 bytes_per_chunk = rows_at_once * layout.partial * static_cast<tw_i64>(sizeof(T));
  layout.chunk_limit = core::clamp_i64(partial_bytes / bytes_per_chunk, 1, most_chunks);
  const tw_i64 chunks = core::min_i64(layout.chunk_limit, core::ceil_div(p.kv_len, least_chunk));
  layout.group_partials = chunks * rows_at_once * layout.partial;
  const tw_i64 fitting = wave_bytes / core::max_i64(1, layout.group_partials * static_cast<tw_i64>(sizeof(T)));
  layout.wave = core::clamp_i64(fitting, 1, core::max_i64(1, p.batch * p.kv_heads * layout.row_groups));
  layout.worker_elements = group_rows * (layout.depth + layout.columns + 2 * decode_block) + 2 * decode_block +
                           3 * group_rows + layout.columns + (layout.copy_k ? decode_block * layout.depth : 0) +
                           (layout.copy_v ? decode_block * layout.columns : 0);
  return layout;
}

template <class T>
inline DecodeScratch<T> decode_scratch_of(const DecodeLayout<T>& layout, void* workspace, int worker) {
  T* at = static_cast<T*>(workspace) + worker * layout.worker_elements;
  const auto take = [&at](tw_i64 n) {
    T* const begin = at;
    at += n;
    return begin;
  };
  DecodeScratch<T> scratch{};
  scratch.q = take(group_rows * layout.depth);
  scratch.o = take(group_rows * layout.columns);
  scratch.s = take(group_rows * decode_block);
  scratch.visible = take(group_rows * decode_block);
  scratch.mask = take(decode_block);
  scratch.bias = take(decode_block);
  scratch.m = take(group_rows);
  scratch.l = take(group_rows);
  scratch.alpha = take(group_rows);
  scratch.total = take(layout.columns);
  scratch.k = layout.copy_k ? take(decode_block * layout.depth) : nullptr;
  scratch.v = layout.copy_v ? take(decode_block * layout.columns) : nullptr;
  return scratch;
}

// Keys of a task, from a sequence's own length: the same in every batch and for any number of threads.
template <class T>
inline tw_i64 chunk_keys(const DecodeLayout<T>& layout, tw_i64 k_len) {
  const tw_i64 keys = core::max_i64(least_chunk, core::ceil_div(k_len, layout.chunk_limit));
  return core::ceil_div(keys, decode_block) * decode_block;
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
