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
  // The tile holds the diagonals j - i in [keys.begin - last, keys.end - 1 - first]; those in [lo, hi] are visible.
  if (band.lo > band.hi || first_key(band, first) >= keys.end || last_key(band, last) < keys.begin) return tile_skipped;
  if (first_key(band, last) <= keys.begin && last_key(band, first) >= keys.end - 1) return tile_full;
  return tile_cut;
}

// Indices of the key tiles of `tile_k` keys that are not skipped: exactly those of which some query of `queries` sees a
// key. {0, 0} when there is none.
TW_FN Range key_tiles(Band band, Range queries, tw_i64 k_len, tw_i64 tile_k) {
  const Range keys = visible_keys_of(band, queries, k_len);
  if (keys.begin >= keys.end) return {0, 0};
  return {keys.begin / tile_k, ceil_div(keys.end, tile_k)};
}

// Indices of the key tiles that are full, as a part of `tiles` = key_tiles(band, queries, k_len, tile_k): tiles in
// [tiles.begin, full.begin) are cut, then come the full ones, and those in [full.end, tiles.end) are cut. Without a
// full tile all count as the first group: {tiles.end, tiles.end}. The last tile of a sequence, though shorter, is full
// when all the keys that it has are visible.
TW_FN Range full_key_tiles(Band band, Range queries, tw_i64 k_len, tw_i64 tile_k) {
  const Range tiles = key_tiles(band, queries, k_len, tile_k);
  const Range keys = common_keys_of(band, queries, k_len);
  const tw_i64 begin = ceil_div(keys.begin, tile_k);
  const tw_i64 end = keys.end == k_len ? ceil_div(k_len, tile_k) : keys.end / tile_k;
  if (keys.begin >= keys.end || begin >= end) return {tiles.end, tiles.end};
  return {begin, end};
}

// The same for the query tiles of `tile_q` queries that a range of keys meets (the gradients of K and V).
TW_FN Range query_tiles(Band band, Range keys, tw_i64 q_len, tw_i64 tile_q) {
  return key_tiles(transposed(band), keys, q_len, tile_q);
}
TW_FN Range full_query_tiles(Band band, Range keys, tw_i64 q_len, tw_i64 tile_q) {
  return full_key_tiles(transposed(band), keys, q_len, tile_q);
}

// Pairs in [0, q_len) x [0, k_len) with j <= i + hi. Exact while q_len * k_len fits.
TW_FN tw_i64 count_up_to(tw_i64 hi, tw_i64 q_len, tw_i64 k_len) {
  if (q_len <= 0 || k_len <= 0 || hi <= -q_len) return 0;
  if (hi >= k_len) return q_len * k_len;
  const tw_i64 begin = max_i64(0, -hi);                         // first query with a key
  const tw_i64 full = clamp_i64(k_len - hi - 1, begin, q_len);  // queries from here on see all k_len keys
  const tw_i64 ramp = full - begin;                             // these see begin + hi + 1, + 1, ...
  return ramp * (begin + hi + 1) + ramp * (ramp - 1) / 2 + (q_len - full) * k_len;
}

// Visible pairs, in closed form: what is useful of q_len * k_len.
TW_FN tw_i64 visible_pairs(Band band, tw_i64 q_len, tw_i64 k_len) {
  if (q_len <= 0 || k_len <= 0 || band.lo > band.hi) return 0;
  const tw_i64 below = band.lo == i64_lowest() ? 0 : count_up_to(subtract_saturated(band.lo, 1), q_len, k_len);
  return count_up_to(band.hi, q_len, k_len) - below;
}

// Part `index` of [0, length) cut at multiples of `size`, which alone decides the boundaries; {length, length} past the
// end. There are ceil_div(length, size) parts.
TW_FN Range split_range(tw_i64 length, tw_i64 size, tw_i64 index) {
  if (index >= ceil_div(length, size)) return {length, length};
  const tw_i64 begin = index * size;
  return {begin, length - begin < size ? length : begin + size};
}

}  // namespace core
}  // namespace tilewise
