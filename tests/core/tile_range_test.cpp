#include "core/tile_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "core/reference.h"

namespace tilewise::core {
namespace {

#if TW_SPARSE
constexpr std::array<std::int64_t, 4> tile_sizes{1, 3, 4, 16};
#else
constexpr std::array<std::int64_t, 6> tile_sizes{1, 2, 3, 4, 7, 16};
#endif

Range tile_at(std::int64_t index, std::int64_t size, std::int64_t length) {
  return {index * size, std::min(length, (index + 1) * size)};
}

// What the rows [rows.begin, rows.end) see: some of them, and all of them.
struct Seen {
  PositionSet some = 0;
  PositionSet all = ~PositionSet{0};
};
Seen seen_by(const std::vector<PositionSet>& rows, Range range) {
  Seen seen;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    seen.some |= rows[static_cast<std::size_t>(i)];
    seen.all &= rows[static_cast<std::size_t>(i)];
  }
  return seen;
}

TileState state_of(Seen seen, PositionSet tile) {
  if ((seen.some & tile) == 0) return tile_skipped;
  return (seen.all & tile) == tile ? tile_full : tile_cut;
}

// The tiles of one row (or column) of tiles in a state, met in order.
struct Run {
  Range range{0, 0};
  std::int64_t count = 0;

  void take(std::int64_t tile) {
    if (count++ == 0) range.begin = tile;
    range.end = tile + 1;
  }
  [[nodiscard]] bool unbroken() const { return count == range.end - range.begin; }
};

// What key_tiles and full_key_tiles promise, from the states of the tiles in order.
class Tally {
 public:
  void take(std::int64_t tile, TileState state) {
    if (state != tile_skipped) visited_.take(tile);
    if (state == tile_full) full_.take(tile);
  }
  [[nodiscard]] bool matches(Range tiles, Range full) const {
    const Range expected = full_.count > 0 ? full_.range : Range{visited_.range.end, visited_.range.end};
    return visited_.unbroken() && full_.unbroken() && tiles == visited_.range && full == expected;
  }

 private:
  Run visited_;
  Run full_;
};

// `rows` are the keys that each query sees, `columns` the queries that see each key.
testing::AssertionResult tiles_match(const SmallProblem& problem, const std::vector<PositionSet>& rows,
                                     const std::vector<PositionSet>& columns, std::int64_t tile_q,
                                     std::int64_t tile_k) {
  const Band band = problem.band();
  const std::int64_t q_tiles = (problem.q_len + tile_q - 1) / tile_q;
  const std::int64_t k_tiles = (problem.k_len + tile_k - 1) / tile_k;
  for (std::int64_t r = 0; r < q_tiles; ++r) {
    const Range queries = tile_at(r, tile_q, problem.q_len);
    const Seen seen = seen_by(rows, queries);
    Tally tally;
    for (std::int64_t c = 0; c < k_tiles; ++c) {
      const Range keys = tile_at(c, tile_k, problem.k_len);
      const TileState state = state_of(seen, positions(keys.begin, keys.end));
      tally.take(c, state);
      if (tile_state(band, queries, keys) != state) {
        return testing::AssertionFailure() << "state of queries " << queries << " keys " << keys;
      }
    }
    const Range tiles = key_tiles(band, queries, problem.k_len, tile_k);
    const Range full = full_key_tiles(band, queries, problem.k_len, tile_k);
    if (!tally.matches(tiles, full)) {
      return testing::AssertionFailure() << "queries " << queries << ": key tiles " << tiles << ", full " << full;
    }
  }
  for (std::int64_t c = 0; c < k_tiles; ++c) {
    const Range keys = tile_at(c, tile_k, problem.k_len);
    const Seen seen = seen_by(columns, keys);
    Tally tally;
    for (std::int64_t r = 0; r < q_tiles; ++r) {
      const Range queries = tile_at(r, tile_q, problem.q_len);
      tally.take(r, state_of(seen, positions(queries.begin, queries.end)));
    }
    const Range tiles = query_tiles(band, keys, problem.q_len, tile_q);
    const Range full = full_query_tiles(band, keys, problem.q_len, tile_q);
    if (!tally.matches(tiles, full)) {
      return testing::AssertionFailure() << "keys " << keys << ": query tiles " << tiles << ", full " << full;
    }
  }
  return testing::AssertionSuccess();
}

class TileSizes : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(TileRange, TileSizes, testing::ValuesIn(tile_sizes), testing::PrintToStringParamName());

TEST_P(TileSizes, StatesAndRangesMatchTheDefinition) {
  const std::int64_t tile_q = GetParam();
  for_each_small_problem([&](const SmallProblem& problem) {
    const std::vector<PositionSet> rows = problem.keys_by_query();
    const std::vector<PositionSet> columns = problem.queries_by_key();
    for (const std::int64_t tile_k : tile_sizes) {
      EXPECT_TRUE(tiles_match(problem, rows, columns, tile_q, tile_k))
          << problem.text() << ", tiles of " << tile_q << " x " << tile_k;
    }
    return !HasFailure();
  });
}

TEST(TileRange, EmptyTilesAreSkipped) {
  EXPECT_EQ(tile_state(everything(), {3, 3}, {0, 4}), tile_skipped);
  EXPECT_EQ(tile_state(everything(), {0, 4}, {2, 2}), tile_skipped);
  EXPECT_EQ(key_tiles(everything(), {3, 3}, 8, 4), (Range{0, 0}));
  EXPECT_EQ(full_key_tiles(everything(), {3, 3}, 8, 4), (Range{0, 0}));
  EXPECT_EQ(key_tiles(everything(), {0, 3}, 0, 4), (Range{0, 0}));
}

TEST(TileRange, StatesAtTheEndsOfInt64) {
  const Range far{int64_max - 3, int64_max - 1};
  EXPECT_EQ(tile_state(everything(), far, far), tile_full);
  EXPECT_EQ(tile_state(everything(), {0, 2}, far), tile_full);
  EXPECT_EQ(tile_state({0, 0}, far, far), tile_cut);
  EXPECT_EQ(tile_state({int64_min, 0}, {0, 2}, far), tile_skipped);
  EXPECT_EQ(tile_state({int64_max, int64_max}, far, far), tile_skipped);
  EXPECT_EQ(tile_state({int64_min, int64_min}, far, far), tile_skipped);
  EXPECT_EQ(tile_state({int64_min + 1, int64_max - 1}, far, {0, 1}), tile_full);
  EXPECT_EQ(key_tiles({0, 0}, far, int64_max, 2), (Range{int64_max / 2 - 1, int64_max / 2}));
  EXPECT_EQ(query_tiles({0, 0}, far, int64_max, 2), (Range{int64_max / 2 - 1, int64_max / 2}));
}

TEST(TileRange, PairsMatchTheDefinition) {
  for_each_small_problem([](const SmallProblem& problem) {
    std::int64_t pairs = 0;
    for (const PositionSet keys : problem.keys_by_query()) pairs += std::popcount(keys);
    EXPECT_EQ(visible_pairs(problem.band(), problem.q_len, problem.k_len), pairs) << problem.text();
    if (!problem.lo) {
      EXPECT_EQ(count_up_to(problem.band().hi, problem.q_len, problem.k_len), pairs) << problem.text();
    }
    return !testing::Test::HasFailure();
  });
}

// By rows, for lengths at which only a closed form is quick, up to the largest product that int64 holds.
TEST(TileRange, PairsOfLongSequences) {
  constexpr std::int64_t longest = 3037000499;  // its square fits, that of its successor does not
  EXPECT_EQ(visible_pairs(everything(), longest, longest), longest * longest);
  EXPECT_EQ(visible_pairs({int64_min, 0}, longest, longest), (longest + 1) / 2 * longest);
  EXPECT_EQ(visible_pairs({0, int64_max}, longest, longest), (longest + 1) / 2 * longest);
  EXPECT_EQ(visible_pairs({0, 0}, longest, longest), longest);
  EXPECT_EQ(visible_pairs({-1, 1}, longest, longest), 3 * longest - 2);
  EXPECT_EQ(visible_pairs({int64_min, int64_max}, int64_max, 1), int64_max);
  EXPECT_EQ(visible_pairs({int64_min, int64_min}, longest, longest), 0);
  EXPECT_EQ(visible_pairs({int64_max, int64_max}, longest, longest), 0);
  EXPECT_EQ(visible_pairs({int64_min + 1, int64_max - 1}, longest, longest), longest * longest);

  std::mt19937 random(3);
  for (int sample = 0; sample < 300; ++sample) {
    const auto between = [&](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    const std::int64_t q_len = between(1, 3000);
    const std::int64_t k_len = between(1, 3000);
    const Band band{between(-q_len - 1, k_len + 1), between(-q_len - 1, k_len + 1)};
    std::int64_t pairs = 0;
    for (std::int64_t i = 0; i < q_len; ++i) {
      pairs += std::max<std::int64_t>(0, std::min(k_len - 1, i + band.hi) - std::max<std::int64_t>(0, i + band.lo) + 1);
    }
    ASSERT_EQ(visible_pairs(band, q_len, k_len), pairs)
        << "q_len " << q_len << " k_len " << k_len << " lo " << band.lo << " hi " << band.hi;
  }
}

TEST(TileRange, CeilDivIsTheSmallestMultipleThatCovers) {
  for (std::int64_t b = 1; b <= 20; ++b) {
    for (std::int64_t a = 0; a <= 100; ++a) {
      std::int64_t expected = 0;
      while (expected * b < a) ++expected;
      ASSERT_EQ(ceil_div(a, b), expected) << a << " / " << b;
    }
  }
  EXPECT_EQ(ceil_div(int64_max, 1), int64_max);
  EXPECT_EQ(ceil_div(int64_max, 2), int64_max / 2 + 1);
  EXPECT_EQ(ceil_div(int64_max, int64_max), 1);
}

// Parts in order cover [0, length) without gaps, all but the last are whole, and those past the end are empty.
TEST(TileRange, SplitsCoverTheRange) {
  for (std::int64_t length = 0; length <= 40; ++length) {
    for (std::int64_t size = 1; size <= 45; ++size) {
      std::int64_t next = 0;
      std::int64_t index = 0;
      for (; next < length; ++index) {
        const Range part = split_range(length, size, index);
        ASSERT_EQ(part, (Range{next, std::min(length, next + size)})) << length << " by " << size << ", part " << index;
        next = part.end;
      }
      ASSERT_EQ(index, ceil_div(length, size));
      for (int past = 0; past < 3; ++past) ASSERT_EQ(split_range(length, size, index + past), (Range{length, length}));
    }
  }
  EXPECT_EQ(split_range(10, int64_max, 0), (Range{0, 10}));
  EXPECT_EQ(split_range(10, int64_max, 5), (Range{10, 10}));
  EXPECT_EQ(split_range(int64_max, int64_max - 1, 1), (Range{int64_max - 1, int64_max}));
  EXPECT_EQ(split_range(int64_max, int64_max - 1, int64_max), (Range{int64_max, int64_max}));
}

}  // namespace
}  // namespace tilewise::core
