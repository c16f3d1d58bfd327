#pragma once

// Every function of the shared headers of core/, called once on values, so that scripts/check_dialect.py can compile
// all of core/ in a dialect. It defines PROBE_EXP2, PROBE_LOG2 and PROBE_TANH, the dialect's functions on float.

#include "core/band.h"
#include "core/index_map.h"
#include "core/lang.h"
#include "core/philox.h"
#include "core/tile_range.h"

namespace probe {

template <class V>
struct Ops;

template <>
struct Ops<float> {
  TW_FN static float zero() { return 0.0f; }
  TW_FN static float one() { return 1.0f; }
  TW_FN static float lowest() { return -3.40282347e38f; }
  TW_FN static float highest() { return 3.40282347e38f; }
  TW_FN static float log2_e() { return 1.44269504f; }
  TW_FN static float ln2() { return 0.693147181f; }
  TW_FN static float add(float a, float b) { return a + b; }
  TW_FN static float sub(float a, float b) { return a - b; }
  TW_FN static float mul(float a, float b) { return a * b; }
  TW_FN static float div(float a, float b) { return a / b; }
  TW_FN static float neg(float a) { return -a; }
  TW_FN static float abs(float a) { return a < 0.0f ? -a : a; }
  TW_FN static float max(float a, float b) { return a > b ? a : b; }
  TW_FN static float min(float a, float b) { return a < b ? a : b; }
  TW_FN static float exp2(float x) { return PROBE_EXP2(x); }
  TW_FN static float log2(float x) { return PROBE_LOG2(x); }
  TW_FN static float tanh(float x) { return PROBE_TANH(x); }
  TW_FN static float select_equal(float a, float b, float yes, float no) { return a == b ? yes : no; }
  TW_FN static float select_finite(float x, float yes, float no) { return abs(x) <= highest() ? yes : no; }
};

#define TW_TARGET
#include "core/row_softmax-inl.h"
#include "core/scores-inl.h"
#undef TW_TARGET

TW_FN tw_i64 length(tilewise::core::Range range) { return range.end - range.begin; }

TW_FN tw_i64 every_integer_function(tw_i64 x) {
  using namespace tilewise::core;
  const Band band = transposed(band_of(true, min_i64(x, 9), true, max_i64(x, -9), subtract_saturated(x, 1)));
  const Range all = {0, x};
  tw_i64 sum =
      add_saturated(i64_lowest(), i64_highest()) + clamp_i64(x, 0, 100) + first_key(band, x) + last_key(band, x);
  sum += length(visible_keys(everything(), x, x)) + length(visible_keys_of(band, all, x)) +
         length(common_keys_of(band, all, x)) + length(visible_queries(band, x, x)) + (is_visible(band, x, x) ? 1 : 0);
  sum += length(key_tiles(band, all, x, 4)) + length(full_key_tiles(band, all, x, 4)) +
         length(query_tiles(band, all, x, 4)) + length(full_query_tiles(band, all, x, 4)) + tile_state(band, all, all) +
         ceil_div(x, 4) + count_up_to(x, x, x) + visible_pairs(band, x, x) + length(split_range(x, 4, 0));
  const Strides strides = {x, x, x, 1};
  const Sequence sequence = clamped_sequence(0, 0, clamped_slot(0, x, x), all, x, x);
  sum += offset_of(strides, x, x, x, x) + kv_head_of(x, x, x) + sequence.q_len +
         band_delta(corner_bottom_right, x, x, x) + alibi_delta(corner_explicit, x, x, x) + alibi_distance(x, x, x) +
         paged_row(x, 16).row + clamped_page(x, 16);
  const PhiloxWords counter = {1u, 2u, 3u, 4u};
  const tw_u64 seed = static_cast<tw_u64>(x);
  return sum + philox4x32_10(5u, 6u, counter).x0 + dropout_words(seed, 7u, x, x, x).x1 +
         (is_kept(dropout_word(seed, 7u, x, x, x), seed) ? 1 : 0);
}

TW_FN float every_real_function(float x) {
  const Grown<float> grown = grow(add(no_keys<float>(), x), x);
  const Merged<float> merged = merge(grown.rows, sink_only(to_log2_units(x)));
  return lse(merged.rows) + inverse_sum(merged.rows) + grown.alpha + merged.wa + merged.wb + weight(x, merged.rows.m) +
         softcapped(x, x) + alibi(x, x);
}

}  // namespace probe
