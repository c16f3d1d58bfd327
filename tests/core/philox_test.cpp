#include "core/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <random>

namespace tilewise::core {
namespace {

using Words = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

Words words_of(PhiloxWords w) { return {w.x0, w.x1, w.x2, w.x3}; }

Words philox(Key key, Words counter) {
  return words_of(philox4x32_10(key[0], key[1], {counter[0], counter[1], counter[2], counter[3]}));
}

// Random123's file kat_vectors, lines "philox4x32 10".
TEST(Philox, PublishedVectors) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Salmon et al. 2011, section 3.3, from the text: each round takes R to the high word xor key xor L, L to the low word,
// and the words change places between the two halves; the key is bumped between rounds by Weyl constants.
Words philox_from_the_paper(Key key, Words counter) {
  constexpr std::uint64_t multipliers[2] = {0xD2511F53, 0xCD9E8D57};
  constexpr std::uint32_t weyl[2] = {0x9E3779B9, 0xBB67AE85};
  for (std::uint32_t round = 0; round < 10; ++round) {
    Words next{};
    for (std::size_t half = 0; half < 2; ++half) {
      const std::size_t other = 1 - half;
      const std::uint64_t product = multipliers[other] * counter[2 * other];
      const std::uint32_t round_key = key[half] + round * weyl[half];
      next[2 * half] = static_cast<std::uint32_t>(product / 0x100000000u) ^ counter[2 * half + 1] ^ round_key;
      next[2 * half + 1] = static_cast<std::uint32_t>(product % 0x100000000u);
    }
    counter = next;
  }
  return counter;
}

TEST(Philox, MatchesThePaper) {
  std::mt19937 random(1);
  const auto word = [&] { return static_cast<std::uint32_t>(random()); };
  for (int sample = 0; sample < 10000; ++sample) {
    const Key key{word(), word()};
    const Words counter{word(), word(), word(), word()};
    ASSERT_EQ(philox(key, counter), philox_from_the_paper(key, counter));
  }
}

// DESIGN section 2: key = (low, high) word of seed, counter = (offset, b * Hq + h, i, j / 4), word j % 4.
TEST(Philox, DropoutWordsFollowTheContract) {
  std::mt19937_64 random(2);
  for (int sample = 0; sample < 500; ++sample) {
    const std::uint64_t seed = random();
    const auto offset = static_cast<std::uint32_t>(random());
    const auto row = static_cast<std::int64_t>(random() >> 40);
    const auto i = static_cast<std::int64_t>(random() >> (33 + random() % 30));
    const auto first = static_cast<std::int64_t>(random() >> (33 + random() % 30));
    const Key key{static_cast<std::uint32_t>(seed & 0xffffffff), static_cast<std::uint32_t>(seed >> 32)};
    for (std::int64_t j = first; j < first + 9; ++j) {
      const Words counter{offset, static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(i),
                          static_cast<std::uint32_t>(j / 4)};
      const Words expected = philox_from_the_paper(key, counter);
      ASSERT_EQ(dropout_word(seed, offset, row, i, j), expected[static_cast<std::size_t>(j % 4)]);
      ASSERT_EQ(words_of(dropout_words(seed, offset, row, i, j / 4)), expected);
    }
  }
}

TEST(Philox, KeepsByThreshold) {
  EXPECT_TRUE(is_kept(0, 0));                                 // p = 0 keeps all
  EXPECT_FALSE(is_kept(0xffffffff, std::uint64_t{1} << 32));  // p = 1 keeps none
  EXPECT_TRUE(is_kept(0x80000000, 0x80000000));
  EXPECT_FALSE(is_kept(0x7fffffff, 0x80000000));
}

// A fault in the counter's layout shows as words that repeat or as a wrong share of kept weights.
TEST(Philox, KeepsTheRightShare) {
  constexpr std::uint64_t threshold = 0x40000000;  // p = 1/4
  constexpr std::int64_t side = 256;
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < side; ++i) {
    for (std::int64_t j = 0; j < side; ++j) kept += is_kept(dropout_word(42, 0, 3, i, j), threshold) ? 1 : 0;
  }
  const double expected = 0.75 * side * side;
  EXPECT_NEAR(static_cast<double>(kept), expected, 5 * std::sqrt(expected * 0.25));
}

}  // namespace
}  // namespace tilewise::core
