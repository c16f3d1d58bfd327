#pragma once

// Which tiles of the score matrix are visited, and which of those need an element mask. A tile is
// [queries.begin, queries.end) x [keys.begin, keys.end) of positions inside one sequence.

#include "core/band.h"

namespace tilewise {
namespace core {

enum TileState {
  tile_skipped,  // no query of the tile sees a key of it
  tile_cut,      // some pairs are visible, some are not: mask by element
  tile_full      // every pair is visible
};

TW_FN tw_i64 ceil_div(tw_i64 a, tw_i64 b) { return a / b + (a % b > 0 ? 1 : 0); }  // a >= 0, b > 0

TW_FN TileState tile_state(Band band, Range queries, Range keys) {
  if (queries.begin >= queries.end || keys.begin >= keys.end) return tile_skipped;
  const tw_i64 first = queries.begin;
  const tw_i64 last = queries.end - 1;
  // Visible pairs lie between the diagonals lo and hi; a tile touches diagonals j - i from keys.begin - last on.
  if (band.lo > band.hi || first_key(band, first) >= keys.end || last_key(band, last) < keys.begin) return tile_skipped;
  if (first_key(band, last) <= keys.begin && last_key(band, first) >= keys.end - 1) return tile_full;
  return tile_cut;
}

// Indices of key tiles of `tile_k` keys that some query of `queries` may see. With an unbroken band every tile in the
// range is visited or, at narrow bands, at least inside the hull; check tile_state for the exact answer.
TW_FN Range key_tiles(Band band, Range queries, tw_i64 k_len, tw_i64 tile_k) {
  const Range keys = visible_keys_of(band, queries, k_len);
  if (keys.begin >= keys.end) return {0, 0};
  return {keys.begin / tile_k, ceil_div(keys.end, tile_k)};
}

// Sum of max(0, min(last, k_len - 1) - max(first, 0) + 1) over the queries: useful pairs, in closed form.
// count_up_to counts pairs with 0 <= j <= min(i + hi, k_len - 1) for i in [0, q_len).
TW_FN tw_i64 count_up_to(tw_i64 hi, tw_i64 q_len, tw_i64 k_len) {
  if (hi == i64_highest() || hi >= k_len) return q_len * k_len;
  if (q_len <= 0 || k_len <= 0 || hi <= -q_len) return 0;
  const tw_i64 begin = max_i64(0, -hi);                         // first query with a key
  const tw_i64 full = clamp_i64(k_len - hi - 1, begin, q_len);  // queries from here on see all k_len keys
  const tw_i64 ramp = full - begin;                             // these see begin + hi + 1, + 1, ...
  return ramp * (begin + hi + 1) + ramp * (ramp - 1) / 2 + (q_len - full) * k_len;
}

TW_FN tw_i64 visible_pairs(Band band, tw_i64 q_len, tw_i64 k_len) {
  if (q_len <= 0 || k_len <= 0 || band.lo > band.hi) return 0;
  const tw_i64 below = band.lo == i64_lowest() ? 0 : count_up_to(subtract_saturated(band.lo, 1), q_len, k_len);
  return count_up_to(band.hi, q_len, k_len) - below;
}

// Part `index` of [0, length) cut at fixed multiples of `size`: boundaries depend on nothing else.
TW_FN Range split_range(tw_i64 length, tw_i64 size, tw_i64 index) {
  const tw_i64 begin = min_i64(length, index * size);
  return {begin, min_i64(length, begin + size)};
}

}  // namespace core
}  // namespace tilewise
