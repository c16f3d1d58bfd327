#pragma once

// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): dropout's counter-based generator.

#include "core/lang.h"

namespace tilewise {
namespace core {

struct PhiloxWords {
  tw_u32 x0;
  tw_u32 x1;
  tw_u32 x2;
  tw_u32 x3;
};

TW_FN PhiloxWords philox4x32_10(tw_u32 key0, tw_u32 key1, PhiloxWords counter) {
  for (int round = 0; round < 10; ++round) {
    const tw_u64 p0 = static_cast<tw_u64>(0xD2511F53u) * counter.x0;
    const tw_u64 p1 = static_cast<tw_u64>(0xCD9E8D57u) * counter.x2;
    counter = {static_cast<tw_u32>(p1 >> 32) ^ counter.x1 ^ key0, static_cast<tw_u32>(p1),
               static_cast<tw_u32>(p0 >> 32) ^ counter.x3 ^ key1, static_cast<tw_u32>(p0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The words of the weights (row_of_heads, i, 4 * quad + 0..3), with row_of_heads = batch * q_heads + head. The counter
// keeps the low 32 bits of each index.
TW_FN PhiloxWords dropout_words(tw_u64 seed, tw_u32 offset, tw_i64 row_of_heads, tw_i64 i, tw_i64 quad) {
  return philox4x32_10(static_cast<tw_u32>(seed), static_cast<tw_u32>(seed >> 32),
                       {offset, static_cast<tw_u32>(row_of_heads), static_cast<tw_u32>(i), static_cast<tw_u32>(quad)});
}

// The word that decides about the weight (row_of_heads, i, j).
TW_FN tw_u32 dropout_word(tw_u64 seed, tw_u32 offset, tw_i64 row_of_heads, tw_i64 i, tw_i64 j) {
  const PhiloxWords words = dropout_words(seed, offset, row_of_heads, i, j / 4);
  const int lane = static_cast<int>(j % 4);
  return lane == 0 ? words.x0 : lane == 1 ? words.x1 : lane == 2 ? words.x2 : words.x3;
}

// A weight is kept iff this holds for threshold = ceil(p * 2^32), which needs 33 bits: p = 1 keeps none.
TW_FN bool is_kept(tw_u32 word, tw_u64 threshold) { return word >= threshold; }

}  // namespace core
}  // namespace tilewise
