#include "core/band.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/reference.h"

namespace tilewise::core {
namespace {

__extension__ using Wide = __int128;

// Around everything that can go wrong: both ends, half-way, zero.
constexpr std::array<std::int64_t, 19> interesting{int64_min,
                                                   int64_min + 1,
                                                   int64_min + 2,
                                                   int64_min / 2 - 1,
                                                   int64_min / 2,
                                                   -4096,
                                                   -2,
                                                   -1,
                                                   0,
                                                   1,
                                                   2,
                                                   7,
                                                   4096,
                                                   int64_max / 2,
                                                   int64_max / 2 + 1,
                                                   int64_max / 2 + 2,
                                                   int64_max - 2,
                                                   int64_max - 1,
                                                   int64_max};

// Positions lie in [0, 2^63 - 1).
std::vector<std::int64_t> interesting_positions() {
  std::vector<std::int64_t> found;
  for (const std::int64_t x : interesting) {
    if (x >= 0 && x < int64_max) found.push_back(x);
  }
  return found;
}

std::int64_t saturated(Wide x) { return static_cast<std::int64_t>(std::clamp<Wide>(x, int64_min, int64_max)); }

TEST(Band, EndsOfInt64) {
  EXPECT_EQ(i64_lowest(), int64_min);
  EXPECT_EQ(i64_highest(), int64_max);
}

TEST(Band, ArithmeticSaturates) {
  for (const std::int64_t a : interesting) {
    for (const std::int64_t b : interesting) {
      EXPECT_EQ(add_saturated(a, b), saturated(Wide{a} + b)) << a << " + " << b;
      EXPECT_EQ(subtract_saturated(a, b), saturated(Wide{a} - b)) << a << " - " << b;
      EXPECT_EQ(min_i64(a, b), std::min(a, b));
      EXPECT_EQ(max_i64(a, b), std::max(a, b));
    }
  }
}

TEST(Band, ClampsIntoClosedIntervals) {
  for (std::int64_t x = -3; x <= 8; ++x) {
    for (std::int64_t low = -2; low <= 5; ++low) {
      for (std::int64_t high = low; high <= 5; ++high) EXPECT_EQ(clamp_i64(x, low, high), std::clamp(x, low, high));
    }
  }
}

TEST(Band, EverythingSeesEverything) {
  for (const std::int64_t i : interesting_positions()) {
    for (const std::int64_t j : interesting_positions()) EXPECT_TRUE(is_visible(everything(), i, j)) << i << " " << j;
  }
}

TEST(Band, ComesFromLeftRightAndDelta) {
  for (std::int64_t delta = -6; delta <= 6; ++delta) {
    for (std::int64_t left = -6; left <= 6; ++left) {
      for (std::int64_t right = -6; right <= 6; ++right) {
        for (int sides = 0; sides < 4; ++sides) {
          const bool has_left = (sides & 1) != 0;
          const bool has_right = (sides & 2) != 0;
          const Band band = band_of(has_left, left, has_right, right, delta);
          for (std::int64_t i = 0; i < 6; ++i) {
            for (std::int64_t j = 0; j < 6; ++j) {
              const bool visible = (!has_left || i + delta - left <= j) && (!has_right || j <= i + delta + right);
              ASSERT_EQ(is_visible(band, i, j), visible) << i << " " << j << " delta " << delta << " left " << left
                                                         << " right " << right << " sides " << sides;
            }
          }
        }
      }
    }
  }
}

// A band whose exact bounds need more than 64 bits, against the definition in 128.
TEST(Band, IsExactAtTheEndsOfInt64) {
  const std::vector<std::int64_t> places = interesting_positions();
  for (const std::int64_t delta : interesting) {
    for (const std::int64_t bound : interesting) {
      const Band left_only = band_of(true, bound, false, 0, delta);
      const Band right_only = band_of(false, 0, true, bound, delta);
      for (const std::int64_t i : places) {
        for (const std::int64_t j : places) {
          const bool by_left = Wide{i} + delta - bound <= j;
          const bool by_right = j <= Wide{i} + delta + bound;
          ASSERT_EQ(is_visible(left_only, i, j), by_left) << i << " " << j << " delta " << delta << " left " << bound;
          ASSERT_EQ(is_visible(right_only, i, j), by_right)
              << i << " " << j << " delta " << delta << " right " << bound;
          ASSERT_EQ(is_visible(transposed(left_only), j, i), by_left)
              << i << " " << j << " delta " << delta << " left " << bound;
          ASSERT_EQ(is_visible(transposed(right_only), j, i), by_right)
              << i << " " << j << " delta " << delta << " right " << bound;
        }
      }
    }
  }
}

// Half-open [max(0, first), min(length, last + 1)) of exact bounds; any empty range is as good as another.
bool is_range(Range range, Wide first, Wide last, std::int64_t length) {
  const Wide begin = std::clamp<Wide>(first, 0, length);
  const Wide end = std::clamp<Wide>(last + 1, 0, length);
  if (begin >= end) return range.begin == range.end && 0 <= range.begin && range.end <= length;
  return range.begin == begin && range.end == end;
}

TEST(Band, RangesAreExactAtTheEndsOfInt64) {
  std::vector<std::int64_t> lengths = interesting_positions();
  lengths.push_back(int64_max);
  const std::vector<std::int64_t> places = interesting_positions();
  for (const std::int64_t lo : interesting) {
    for (const std::int64_t hi : interesting) {
      const Band band{lo, hi};
      for (const std::int64_t length : lengths) {
        for (const std::int64_t place : places) {
          const Wide first = lo == int64_min ? Wide{0} : Wide{place} + lo;
          const Wide last = hi == int64_max ? Wide{int64_max} : Wide{place} + hi;
          ASSERT_TRUE(is_range(visible_keys(band, place, length), first, last, length))
              << "lo " << lo << " hi " << hi << " i " << place << " k_len " << length;
          const Range one{place, place + 1};
          ASSERT_TRUE(is_range(visible_keys_of(band, one, length), first, last, length))
              << "lo " << lo << " hi " << hi << " i " << place << " k_len " << length;
          ASSERT_TRUE(is_range(common_keys_of(band, one, length), first, last, length))
              << "lo " << lo << " hi " << hi << " i " << place << " k_len " << length;
          const Wide first_query = hi == int64_max ? Wide{0} : Wide{place} - hi;
          const Wide last_query = lo == int64_min ? Wide{int64_max} : Wide{place} - lo;
          ASSERT_TRUE(is_range(visible_queries(band, place, length), first_query, last_query, length))
              << "lo " << lo << " hi " << hi << " j " << place << " q_len " << length;
        }
      }
    }
  }
}

// The range holds exactly the set, and lies inside [0, length] even when it is empty.
bool holds(Range range, PositionSet set, std::int64_t length) {
  return 0 <= range.begin && range.begin <= range.end && range.end <= length &&
         positions(range.begin, range.end) == set;
}

TEST(Band, OneQueryOrKeyMatchesTheDefinition) {
  for_each_small_problem([](const SmallProblem& problem) {
    const Band band = problem.band();
    const std::vector<PositionSet> keys = problem.keys_by_query();
    const std::vector<PositionSet> queries = problem.queries_by_key();
    for (std::int64_t i = 0; i < problem.q_len; ++i) {
      const Range range = visible_keys(band, i, problem.k_len);
      EXPECT_TRUE(holds(range, keys[static_cast<std::size_t>(i)], problem.k_len))
          << problem.text() << " i " << i << range;
      for (std::int64_t j = 0; j < problem.k_len; ++j) {
        EXPECT_EQ(is_visible(band, i, j), problem.sees(i, j)) << problem.text() << " i " << i << " j " << j;
        EXPECT_EQ(is_visible(transposed(band), j, i), problem.sees(i, j)) << problem.text() << " i " << i << " j " << j;
      }
    }
    for (std::int64_t j = 0; j < problem.k_len; ++j) {
      const Range range = visible_queries(band, j, problem.q_len);
      EXPECT_TRUE(holds(range, queries[static_cast<std::size_t>(j)], problem.q_len))
          << problem.text() << " j " << j << range;
    }
    return !testing::Test::HasFailure();
  });
}

TEST(Band, QueryRangesMatchTheDefinition) {
  for_each_small_problem([](const SmallProblem& problem) {
    const Band band = problem.band();
    const std::vector<PositionSet> keys = problem.keys_by_query();
    for (std::int64_t begin = 0; begin <= problem.q_len; ++begin) {
      PositionSet some = 0;
      PositionSet all = positions(0, problem.k_len);
      for (std::int64_t end = begin; end <= problem.q_len; ++end) {
        if (end > begin) {
          some |= keys[static_cast<std::size_t>(end - 1)];
          all &= keys[static_cast<std::size_t>(end - 1)];
        }
        const Range queries{begin, end};
        const Range seen = visible_keys_of(band, queries, problem.k_len);
        const Range common = common_keys_of(band, queries, problem.k_len);
        EXPECT_TRUE(holds(seen, some, problem.k_len)) << problem.text() << " queries " << queries << " gave " << seen;
        EXPECT_TRUE(holds(common, begin == end ? 0 : all, problem.k_len))
            << problem.text() << " queries " << queries << " gave " << common;
      }
    }
    return !testing::Test::HasFailure();
  });
}

}  // namespace
}  // namespace tilewise::core
