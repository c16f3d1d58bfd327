#pragma once

// Which rows a threadgroup owns, and where they lie: batch items, packed sequences, lengths, pages. Lengths, offsets
// and tables come from device memory and were checked by nobody: all of them are clamped to their tensors.

#include "arguments.h"
#include "core/tile_range.h"

namespace tilewise {
namespace msl {

// A vector of int32 or int64, and the block table.
struct Integers {
  device const int* q_lengths;
  device const int* k_lengths;
  device const int* cu_q;
  device const int* cu_k;
  device const int* table;
};

inline tw_i64 integer_at(device const int* x, tw_i64 offset, bool is_wide) {
  return is_wide ? reinterpret_cast<device const tw_i64*>(x)[offset] : tw_i64(x[offset]);
}

struct Work {
  core::Sequence sequence;
  tw_i64 item;       // batch item or packed sequence: where masks, slopes and page tables are looked up
  tw_i64 first_row;  // of the threadgroup, inside the sequence's slot
  bool exists;       // false: the grid was rounded up, there are no rows for this group
};

inline core::Range packed_slot(device const int* cu, tw_i64 stride, bool is_wide, tw_i64 item, tw_i64 rows) {
  return core::clamped_slot(integer_at(cu, item * stride, is_wide), integer_at(cu, (item + 1) * stride, is_wide), rows);
}

inline core::Sequence sequence_of(constant ForwardArguments& a, Integers x, tw_i64 item) {
  core::Range q_slot = {0, a.q_rows};
  core::Range k_slot = {0, a.k_rows};
  if (a.has_cu_q) q_slot = packed_slot(x.cu_q, a.cu_q_stride, a.wide_cu_q, item, a.q_rows);
  if (a.has_cu_k) k_slot = packed_slot(x.cu_k, a.cu_k_stride, a.wide_cu_k, item, a.k_rows);
  const tw_i64 q_len =
      a.has_q_lengths ? integer_at(x.q_lengths, item * a.q_length_stride, a.wide_q_lengths) : q_slot.end - q_slot.begin;
  const tw_i64 k_len =
      a.has_k_lengths ? integer_at(x.k_lengths, item * a.k_length_stride, a.wide_k_lengths) : k_slot.end - k_slot.begin;
  return core::clamped_sequence(a.has_cu_q ? 0 : item, a.has_cu_k ? 0 : item, q_slot, k_slot, q_len, k_len);
}

// Tile `tile` of `tile_rows` rows. With packed queries tiles are counted through all sequences, and then through the
// rows behind the last one, which are padding.
inline Work find_work(constant ForwardArguments& a, Integers x, tw_i64 tile, tw_i64 item, tw_i64 tile_rows) {
  Work work;
  work.item = item;
  work.exists = true;
  work.first_row = tile * tile_rows;
  if (!a.has_cu_q) {
    work.sequence = sequence_of(a, x, item);
    work.exists = work.first_row < work.sequence.q_slot;
    return work;
  }
  tw_i64 end = 0;
  for (work.item = 0; work.item < a.batch; ++work.item) {
    const core::Range slot = packed_slot(x.cu_q, a.cu_q_stride, a.wide_cu_q, work.item, a.q_rows);
    const tw_i64 tiles = core::ceil_div(slot.end - slot.begin, tile_rows);
    work.first_row = tile * tile_rows;
    if (tile < tiles) {
      work.sequence = sequence_of(a, x, work.item);
      return work;
    }
    tile -= tiles;
    end = core::max_i64(end, slot.end);
  }
  work.item = 0;
  work.first_row = tile * tile_rows;
  work.sequence = core::clamped_sequence(0, 0, {end, a.q_rows}, {0, 0}, 0, 0);
  work.exists = work.first_row < work.sequence.q_slot;
  return work;
}

inline core::Band band_of_sequence(constant ForwardArguments& a, core::Sequence sequence) {
  const tw_i64 delta = core::band_delta(core::Corner(a.corner), a.delta, sequence.q_len, sequence.k_len);
  return core::band_of(a.has_left, a.left, a.has_right, a.right, delta);
}

inline tw_i64 element(constant core::Strides& strides, tw_i64 b, tw_i64 h, tw_i64 s, tw_i64 d) {
  return b * strides.b + h * strides.h + s * strides.s + d * strides.d;
}

// First element of key j's row. Pages are divided in 32 bits: 64-bit division is a long program on Apple GPUs.
inline tw_i64 key_offset(constant ForwardArguments& a, constant core::Strides& strides, device const int* table,
                         core::Sequence sequence, tw_i64 item, tw_i64 kv_head, int j) {
  if (a.page_size == 0) return element(strides, sequence.k_item, kv_head, sequence.k_start + j, 0);
  const int page_size = int(a.page_size);
  const tw_i64 entry = table[item * a.table_b + j / page_size * a.table_page];
  return element(strides, core::clamped_page(entry, a.num_pages), kv_head, j % page_size, 0);
}

}  // namespace msl
}  // namespace tilewise
