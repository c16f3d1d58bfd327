#pragma once

// The one predicate for causal masks and sliding windows: key j is visible to query i iff i + lo <= j <= i + hi, with
// lo = delta - left and hi = delta + right. Unbounded sides sit at the ends of int64, where arithmetic saturates: for
// positions i and j in [0, 2^63 - 1) the answers equal those of unbounded integers.

#include "core/lang.h"

namespace tilewise {
namespace core {

// Half-open; empty iff begin >= end. Functions here return empty ranges as {x, x}.
struct Range {
  tw_i64 begin;
  tw_i64 end;
};

struct Band {
  tw_i64 lo;
  tw_i64 hi;
};

// Without literals of 64 bits, whose suffix differs between the dialects.
TW_FN tw_i64 i64_highest() { return static_cast<tw_i64>(~static_cast<tw_u64>(0) >> 1); }
TW_FN tw_i64 i64_lowest() { return -i64_highest() - 1; }
TW_FN tw_i64 min_i64(tw_i64 a, tw_i64 b) { return a < b ? a : b; }
TW_FN tw_i64 max_i64(tw_i64 a, tw_i64 b) { return a > b ? a : b; }
TW_FN tw_i64 clamp_i64(tw_i64 x, tw_i64 low, tw_i64 high) { return x < low ? low : (x > high ? high : x); }

TW_FN tw_i64 add_saturated(tw_i64 a, tw_i64 b) {
  if (b > 0 && a > i64_highest() - b) return i64_highest();
  if (b < 0 && a < i64_lowest() - b) return i64_lowest();
  return a + b;
}

TW_FN tw_i64 subtract_saturated(tw_i64 a, tw_i64 b) {
  if (b < 0 && a > i64_highest() + b) return i64_highest();
  if (b > 0 && a < i64_lowest() + b) return i64_lowest();
  return a - b;
}

TW_FN Band everything() { return {i64_lowest(), i64_highest()}; }

TW_FN Band band_of(bool has_left, tw_i64 left, bool has_right, tw_i64 right, tw_i64 delta) {
  return {has_left ? subtract_saturated(delta, left) : i64_lowest(),
          has_right ? add_saturated(delta, right) : i64_highest()};
}

// Position of the first and last key that query i may see; an unbounded side stays unbounded for every i.
TW_FN tw_i64 first_key(Band band, tw_i64 i) { return band.lo == i64_lowest() ? band.lo : add_saturated(i, band.lo); }
TW_FN tw_i64 last_key(Band band, tw_i64 i) { return band.hi == i64_highest() ? band.hi : add_saturated(i, band.hi); }

TW_FN bool is_visible(Band band, tw_i64 i, tw_i64 j) { return first_key(band, i) <= j && j <= last_key(band, i); }

// Keys in [0, k_len) that query i sees.
TW_FN Range visible_keys(Band band, tw_i64 i, tw_i64 k_len) {
  const tw_i64 begin = clamp_i64(first_key(band, i), 0, k_len);
  const tw_i64 end = clamp_i64(add_saturated(last_key(band, i), 1), 0, k_len);
  return {begin, max_i64(begin, end)};
}

// Keys in [0, k_len) that at least one query in [queries.begin, queries.end) sees. No key between them is unseen: the
// keys of one query adjoin or overlap those of the next, since bounds grow with i by one.
TW_FN Range visible_keys_of(Band band, Range queries, tw_i64 k_len) {
  if (queries.begin >= queries.end || band.lo > band.hi) return {0, 0};
  const tw_i64 begin = clamp_i64(first_key(band, queries.begin), 0, k_len);
  const tw_i64 end = clamp_i64(add_saturated(last_key(band, queries.end - 1), 1), 0, k_len);
  return {begin, max_i64(begin, end)};
}

// Keys in [0, k_len) that every query in [queries.begin, queries.end) sees; no mask is needed there.
TW_FN Range common_keys_of(Band band, Range queries, tw_i64 k_len) {
  if (queries.begin >= queries.end) return {0, 0};
  const tw_i64 begin = clamp_i64(first_key(band, queries.end - 1), 0, k_len);
  const tw_i64 end = clamp_i64(add_saturated(last_key(band, queries.begin), 1), 0, k_len);
  return {begin, max_i64(begin, end)};
}

// The band with the roles exchanged: is_visible(band, i, j) == is_visible(transposed(band), j, i). The gradients of K
// and V walk the queries of a key tile through it.
TW_FN Band transposed(Band band) {
  return {band.hi == i64_highest() ? i64_lowest() : subtract_saturated(0, band.hi), subtract_saturated(0, band.lo)};
}

// Queries in [0, q_len) that see key j.
TW_FN Range visible_queries(Band band, tw_i64 j, tw_i64 q_len) { return visible_keys(transposed(band), j, q_len); }

}  // namespace core
}  // namespace tilewise
