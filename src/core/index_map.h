#pragma once

// How a logical index becomes an element offset: strides, grouped heads, packed sequences, pages. All 64-bit.

#include "core/band.h"

namespace tilewise {
namespace core {

// Strides in elements of a tensor [batch, head, row, column]; broadcast dimensions have stride 0.
struct Strides {
  tw_i64 b;
  tw_i64 h;
  tw_i64 s;
  tw_i64 d;
};

TW_FN tw_i64 offset_of(Strides strides, tw_i64 b, tw_i64 h, tw_i64 s, tw_i64 d) {
  return b * strides.b + h * strides.h + s * strides.s + d * strides.d;
}

// The KV head that query head q_head reads: consecutive groups of q_heads / kv_heads share one.
TW_FN tw_i64 kv_head_of(tw_i64 q_head, tw_i64 q_heads, tw_i64 kv_heads) { return q_head / (q_heads / kv_heads); }

// Rows of one batch item or packed sequence: positions count from 0 inside it.
struct Sequence {
  tw_i64 q_item;   // index along dimension 0 of q and o (0 when packed)
  tw_i64 k_item;   // index along dimension 0 of k and v (0 when packed; unused when paged)
  tw_i64 q_start;  // first row in q, o, lse (0 unless packed)
  tw_i64 k_start;  // first row in k, v (0 unless packed)
  tw_i64 q_len;    // queries that are not padding
  tw_i64 k_len;    // keys that are not padding
  tw_i64 q_slot;   // rows of the slot, padding included: [q_len, q_slot) get o = 0, lse = -inf
};

// Rows [begin, end) of a packed tensor of `rows` rows, for offsets that nobody checked: bad ones cannot leave the
// tensor.
TW_FN Range clamped_slot(tw_i64 begin, tw_i64 end, tw_i64 rows) {
  const tw_i64 first = clamp_i64(begin, 0, rows);
  return {first, clamp_i64(end, first, rows)};
}

// A sequence whose lengths are clamped to its slots, which lie inside their tensors (see clamped_slot).
TW_FN Sequence clamped_sequence(tw_i64 q_item, tw_i64 k_item, Range q_slot, Range k_slot, tw_i64 q_len, tw_i64 k_len) {
  const tw_i64 q_rows = max_i64(0, q_slot.end - q_slot.begin);
  const tw_i64 k_rows = max_i64(0, k_slot.end - k_slot.begin);
  return {q_item, k_item, q_slot.begin, k_slot.begin, clamp_i64(q_len, 0, q_rows), clamp_i64(k_len, 0, k_rows), q_rows};
}

enum Corner { corner_top_left, corner_bottom_right, corner_explicit };

// delta of the band and of ALiBi for one sequence. ALiBi always measures from the bottom right unless delta is
// explicit.
TW_FN tw_i64 band_delta(Corner corner, tw_i64 explicit_delta, tw_i64 q_len, tw_i64 k_len) {
  if (corner == corner_explicit) return explicit_delta;
  return corner == corner_bottom_right ? k_len - q_len : 0;
}
TW_FN tw_i64 alibi_delta(Corner corner, tw_i64 explicit_delta, tw_i64 q_len, tw_i64 k_len) {
  return corner == corner_explicit ? explicit_delta : k_len - q_len;
}

// i + delta - j, what ALiBi measures, for an alibi_delta as large as it likes.
TW_FN tw_i64 alibi_distance(tw_i64 i, tw_i64 j, tw_i64 delta) { return add_saturated(i - j, delta); }

// Key j of a paged sequence is row `row` of page block_table[b, page].
struct PagedRow {
  tw_i64 page;
  tw_i64 row;
};
TW_FN PagedRow paged_row(tw_i64 j, tw_i64 page_size) { return {j / page_size, j % page_size}; }

// An entry of a block table that nobody checked, for a pool of num_pages >= 1 pages.
TW_FN tw_i64 clamped_page(tw_i64 entry, tw_i64 num_pages) { return clamp_i64(entry, 0, num_pages - 1); }

}  // namespace core
}  // namespace tilewise
