#pragma once

// The packed scalars of a launch, one struct for the host (src/metal/plans.cpp) and for the kernels. Every member has
// 4 or 8 bytes and lies at a multiple of its size, so that both compilers lay it out alike.

#include "core/index_map.h"

namespace tilewise {
namespace msl {

struct ForwardArguments {
  // Element strides [item, head, row, column]; absent tensors have zeros. lse.d is unused.
  core::Strides q, k, v, o, lse, mask, bias;
  tw_i64 slope_b, slope_h;  // ALiBi slopes [B, Hq]
  tw_i64 sink_h;            // sinks [Hq]
  tw_i64 q_length_stride, k_length_stride, cu_q_stride, cu_k_stride;
  tw_i64 table_b, table_page;  // block table [B, max_pages]
  tw_i64 batch;                // items, or packed sequences
  tw_i64 q_heads, kv_heads;
  tw_i64 q_rows, k_rows;        // Sq, Sk of a slot; packed: Tq, Tk; paged: max_pages * page_size
  tw_i64 head_dim, v_dim;       // D, Dv, unpadded
  tw_i64 page_size, num_pages;  // page_size 0: not paged
  tw_i64 left, right, delta;

  float scale;
  float scale_log2;  // scale * log2(e), where scores have no other terms
  float softcap;     // 0: none
  tw_i32 has_left, has_right, corner;
  tw_i32 has_lse, has_mask, has_bias, bias_is_float, has_slopes, has_sinks;
  tw_i32 has_q_lengths, has_k_lengths, has_cu_q, has_cu_k;
  tw_i32 wide_q_lengths, wide_k_lengths, wide_cu_q, wide_cu_k;  // int64 instead of int32
  tw_i32 heavy_first;  // 1: the last query tiles, which see most keys, start first
  tw_i32 v_blocks;     // blocks of ATTENTION_DV columns of V; the grid's z counts item * v_blocks + block
};

struct DecodeArguments {
  ForwardArguments call;
  tw_i64 split_keys;  // keys of a part
  tw_i32 splits;      // parts of a row
  tw_i32 row_tiles;   // simdgroups that share the rows of one KV head
};

}  // namespace msl
}  // namespace tilewise
