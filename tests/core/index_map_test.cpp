#include "core/index_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/reference.h"

namespace tilewise::core {
namespace {

// Every element of a row-major tensor is met once, in order.
TEST(IndexMap, OffsetsOfContiguousStridesCount) {
  constexpr std::array<std::int64_t, 4> shape{2, 3, 4, 5};
  const Strides strides{60, 20, 5, 1};
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t s = 0; s < shape[2]; ++s) {
        for (std::int64_t d = 0; d < shape[3]; ++d) EXPECT_EQ(offset_of(strides, b, h, s, d), next++);
      }
    }
  }
}

TEST(IndexMap, StridesMayBeZeroNegativeOrHuge) {
  EXPECT_EQ(offset_of({0, 0, 7, 1}, 5, 6, 2, 3), 17);
  EXPECT_EQ(offset_of({0, 0, -7, -1}, 0, 0, 2, 3), -17);
  const std::int64_t far = std::int64_t{1} << 40;
  EXPECT_EQ(offset_of({far, 2 * far, 3 * far, 1}, 1, 10, 100, 1000), 321 * far + 1000);
}

// As repeat_interleave would lay out the KV heads.
TEST(IndexMap, QueryHeadsShareKvHeadsInConsecutiveGroups) {
  for (std::int64_t kv_heads = 1; kv_heads <= 8; ++kv_heads) {
    for (std::int64_t group = 1; group <= 8; ++group) {
      std::int64_t q_head = 0;
      for (std::int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
        for (std::int64_t member = 0; member < group; ++member, ++q_head) {
          EXPECT_EQ(kv_head_of(q_head, kv_heads * group, kv_heads), kv_head);
        }
      }
    }
  }
}

// Whatever the offsets and lengths say, all rows lie inside the tensor, and what is right is kept.
TEST(IndexMap, SlotsAndSequencesStayInsideTheTensor) {
  const std::vector<std::int64_t> offsets{int64_min, -5, -1, 0, 1, 2, 3, 4, 5, 6, 7, 100, int64_max};
  for (std::int64_t rows = 0; rows <= 6; ++rows) {
    for (const std::int64_t begin : offsets) {
      for (const std::int64_t end : offsets) {
        const Range slot = clamped_slot(begin, end, rows);
        ASSERT_TRUE(0 <= slot.begin && slot.begin <= slot.end && slot.end <= rows) << begin << " " << end << slot;
        if (0 <= begin && begin <= end && end <= rows) {
          ASSERT_EQ(slot, (Range{begin, end}));
        }
        for (const std::int64_t length : offsets) {
          const Range other{1, 4};
          const Sequence as_q = clamped_sequence(8, 9, slot, other, length, 2);
          ASSERT_EQ(as_q.q_item, 8);
          ASSERT_EQ(as_q.k_item, 9);
          ASSERT_EQ(as_q.q_start, slot.begin);
          ASSERT_EQ(as_q.k_start, 1);
          ASSERT_EQ(as_q.q_slot, slot.end - slot.begin);
          ASSERT_EQ(as_q.k_len, 2);
          ASSERT_EQ(as_q.q_len, std::clamp<std::int64_t>(length, 0, slot.end - slot.begin));

          const Sequence as_k = clamped_sequence(0, 0, other, slot, 1, length);
          ASSERT_EQ(as_k.q_start, 1);
          ASSERT_EQ(as_k.q_len, 1);
          ASSERT_EQ(as_k.q_slot, 3);
          ASSERT_EQ(as_k.k_start, slot.begin);
          ASSERT_EQ(as_k.k_len, std::clamp<std::int64_t>(length, 0, slot.end - slot.begin));
        }
      }
    }
  }
}

TEST(IndexMap, ReversedSlotsHaveNoRows) {
  const Sequence sequence = clamped_sequence(0, 0, {4, 2}, {3, 1}, 5, 5);
  EXPECT_EQ(sequence.q_len, 0);
  EXPECT_EQ(sequence.q_slot, 0);
  EXPECT_EQ(sequence.k_len, 0);
}

// The corner's own pair lies on the diagonal: the first of both, or the last of both.
TEST(IndexMap, DeltaPutsTheCornerOnTheDiagonal) {
  for (std::int64_t q_len = 0; q_len <= 12; ++q_len) {
    for (std::int64_t k_len = 0; k_len <= 12; ++k_len) {
      EXPECT_EQ(0 + band_delta(corner_top_left, 77, q_len, k_len), 0);
      EXPECT_EQ((q_len - 1) + band_delta(corner_bottom_right, 77, q_len, k_len), k_len - 1);
      EXPECT_EQ(band_delta(corner_explicit, 77, q_len, k_len), 77);
      EXPECT_EQ((q_len - 1) + alibi_delta(corner_top_left, 77, q_len, k_len), k_len - 1);
      EXPECT_EQ((q_len - 1) + alibi_delta(corner_bottom_right, 77, q_len, k_len), k_len - 1);
      EXPECT_EQ(alibi_delta(corner_explicit, 77, q_len, k_len), 77);
    }
  }
}

TEST(IndexMap, AlibiDistanceIsExactOrSaturated) {
  __extension__ using Wide = __int128;
  const std::vector<std::int64_t> places{0, 1, 2, 1000, int64_max / 2, int64_max - 2, int64_max - 1};
  const std::vector<std::int64_t> deltas{int64_min, int64_min + 1, int64_min / 2, -3, 0, 3, int64_max / 2, int64_max};
  for (const std::int64_t i : places) {
    for (const std::int64_t j : places) {
      for (const std::int64_t delta : deltas) {
        const Wide exact = Wide{i} + delta - j;
        const Wide expected = exact < int64_min ? int64_min : exact > int64_max ? int64_max : exact;
        EXPECT_EQ(alibi_distance(i, j, delta), static_cast<std::int64_t>(expected)) << i << " " << j << " " << delta;
      }
    }
  }
}

TEST(IndexMap, PagesHoldConsecutiveKeys) {
  for (std::int64_t page_size = 1; page_size <= 17; ++page_size) {
    std::int64_t j = 0;
    for (std::int64_t page = 0; page < 5; ++page) {
      for (std::int64_t row = 0; row < page_size; ++row, ++j) {
        const PagedRow place = paged_row(j, page_size);
        EXPECT_EQ(place.page, page);
        EXPECT_EQ(place.row, row);
      }
    }
  }
}

TEST(IndexMap, PagesStayInsideThePool) {
  for (std::int64_t pages = 1; pages <= 4; ++pages) {
    for (const std::int64_t entry : {int64_min, std::int64_t{-1}, std::int64_t{4}, int64_max}) {
      EXPECT_EQ(clamped_page(entry, pages), entry < 0 ? 0 : pages - 1);
    }
    for (std::int64_t entry = 0; entry < pages; ++entry) EXPECT_EQ(clamped_page(entry, pages), entry);
  }
}

}  // namespace
}  // namespace tilewise::core
