// The oracle against facts that need no other implementation.
#include "verify/oracle.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "verify/call.hpp"

namespace tilewise::verify {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Call random_call(const Shape& shape, std::uint64_t seed, DType dtype = DType::float64) {
  Random random(seed);
  Call call;
  call.q = Tensor(dtype, {shape.b, shape.hq, shape.sq, shape.d});
  call.k = Tensor(dtype, {shape.b, shape.hkv, shape.sk, shape.d});
  call.v = Tensor(dtype, {shape.b, shape.hkv, shape.sk, shape.v_dim()});
  for (Tensor* tensor : {&call.q, &call.k, &call.v}) fill_normal(*tensor, random);
  add_outputs(call);
  return call;
}

OracleRow row_of(Call& call, std::int64_t i, std::int64_t h = 0, std::int64_t b = 0) {
  return oracle_row(call.tensors(), call.options(), {b, h, i});
}

// Two keys by hand: scores 0 and ln 3 give weights 1/4 and 3/4.
Call two_keys() {
  Call call = random_call({.sq = 1, .sk = 2, .d = 1}, 1);
  call.settings.scale = 1;
  call.q.set(0, 1);
  call.k.set(0, 0);
  call.k.set(1, std::log(3.0));
  call.v.set(0, 10);
  call.v.set(1, 20);
  return call;
}

TEST(Oracle, TwoKeysByHand) {
  Call call = two_keys();
  EXPECT_NEAR(row_of(call, 0).o[0], 17.5, 1e-14);
  EXPECT_NEAR(row_of(call, 0).lse, std::log(4.0), 1e-15);
}

TEST(Oracle, ScaleDefaultsToOneOverRootOfD) {
  Call call = random_call({.sq = 1, .sk = 5, .d = 16}, 2);
  const OracleRow implicit = row_of(call, 0);
  call.settings.scale = 0.25;
  EXPECT_EQ(row_of(call, 0).o, implicit.o);
  call.settings.scale = -0.25;
  EXPECT_NE(row_of(call, 0).o, implicit.o);
}

TEST(Oracle, TermsComeInTheirOrder) {
  Call call = two_keys();
  // Softcap 1 on scores (0, ln 3), then biases (1, 0), then ALiBi -2 |i + len_k - len_q - j| = (-2, 0).
  call.settings.softcap = 1;
  call.bias = vector_of(DType::float32, {1, 0});
  call.alibi_slopes = vector_of(DType::float32, {2});
  const double first = 0 + 1 - 2.0;
  const double second = std::tanh(std::log(3.0));
  const double sum = std::exp(first) + std::exp(second);
  const OracleRow row = row_of(call, 0);
  EXPECT_NEAR(row.lse, std::log(sum), 1e-14);
  EXPECT_NEAR(row.o[0], (10 * std::exp(first) + 20 * std::exp(second)) / sum, 1e-13);
  call.settings.band.delta = 0;  // the distance is |0 + 0 - j| now
  const double moved = std::exp(1) + std::exp(second - 2);
  EXPECT_NEAR(row_of(call, 0).lse, std::log(moved), 1e-14);
}

TEST(Oracle, QueryZeroCountsKeysAndAverages) {
  Call call = random_call({.sq = 4, .sk = 9, .d = 8}, 3);
  fill_constant(call.q, 0);
  call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
  for (std::int64_t i = 0; i < 4; ++i) {
    const OracleRow row = row_of(call, i);
    EXPECT_NEAR(row.lse, std::log(static_cast<double>(6 + i)), 1e-14);
    double mean = 0;
    for (std::int64_t j = 0; j < 6 + i; ++j) mean += call.v.get(j * 8) / static_cast<double>(6 + i);
    EXPECT_NEAR(row.o[0], mean, 1e-14);
  }
}

TEST(Oracle, OneKeyGivesItsValue) {
  Call call = random_call({.sq = 3, .sk = 3, .d = 8}, 4);
  call.settings.band = {.left = 0, .right = 0};
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::size_t d = 0; d < 8; ++d) {
      EXPECT_EQ(row_of(call, i).o[d], call.v.get(i * 8 + static_cast<std::int64_t>(d)));
    }
  }
}

TEST(Oracle, BandsByTheirInequality) {
  Call call = random_call({.sq = 5, .sk = 7, .d = 4}, 5);
  fill_constant(call.q, 0);
  for (const std::int64_t left : {-3, 0, 2}) {
    for (const std::int64_t right : {-2, 0, 4}) {
      for (const std::int64_t delta : {-3, 0, 2}) {
        call.settings.band = {.left = left, .right = right, .delta = delta};
        for (std::int64_t i = 0; i < 5; ++i) {
          int visible = 0;
          for (std::int64_t j = 0; j < 7; ++j) visible += i + delta - left <= j && j <= i + delta + right ? 1 : 0;
          EXPECT_NEAR(std::exp(row_of(call, i).lse), visible, 1e-12);
        }
      }
    }
  }
  constexpr auto highest = std::numeric_limits<std::int64_t>::max();
  call.settings.band = {.left = highest, .right = highest, .delta = highest};
  EXPECT_NEAR(std::exp(row_of(call, 4).lse), 3, 1e-12) << "i + delta - left is i, though i + delta overflows";
}

TEST(Oracle, EmptyRowsSinksAndPadding) {
  Call call = random_call({.b = 2, .hq = 2, .hkv = 1, .sq = 2, .sk = 3, .d = 4}, 6);
  call.kv_lengths = vector_of(DType::int64, {0, 3});
  call.q_lengths = vector_of(DType::int32, {1, 2});
  call.sinks = vector_of(DType::float32, {0.5, -infinity});
  EXPECT_EQ(row_of(call, 0, 0, 0).lse, 0.5);
  EXPECT_EQ(row_of(call, 0, 1, 0).lse, -infinity);
  EXPECT_EQ(row_of(call, 1, 0, 0).lse, -infinity) << "padding has no sink";
  EXPECT_EQ(row_of(call, 0, 0, 0).o, std::vector<double>(4, 0));
  const OracleRow with = row_of(call, 0, 0, 1);
  call.sinks = {};
  const OracleRow without = row_of(call, 0, 0, 1);
  EXPECT_NEAR(std::exp(with.lse), std::exp(without.lse) + std::exp(0.5), 1e-12);
  EXPECT_NEAR(with.o[0], without.o[0] * std::exp(without.lse - with.lse), 1e-14);
}

TEST(Oracle, MasksBroadcastRightAligned) {
  Call call = random_call({.b = 2, .hq = 2, .hkv = 2, .sq = 3, .sk = 4, .d = 4}, 7);
  fill_constant(call.q, 0);
  call.mask = Tensor(DType::boolean, {2, 3, 1});  // [Hq, Sq, 1]
  call.mask.set(1 * 3 + 2, 1);                    // head 1, query 2
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(std::exp(row_of(call, i, h, 1).lse), h == 1 && i == 2 ? 4 : 0, 1e-12);
    }
  }
}

TEST(Oracle, GroupedHeads) {
  Call call = random_call({.hq = 6, .hkv = 2, .sq = 1, .sk = 3, .d = 4}, 8);
  fill(call.v, [](std::int64_t flat) { return static_cast<double>(flat / 12); });
  for (std::int64_t h = 0; h < 6; ++h) EXPECT_NEAR(row_of(call, 0, h).o[0], h < 3 ? 0 : 1, 1e-15);
}

TEST(Oracle, PackedSequencesAreTheirOwnProblems) {
  Call packed = random_call({.hq = 2, .hkv = 1, .sq = 10, .sk = 12, .d = 4}, 9);
  packed.cu_q = vector_of(DType::int32, {0, 3, 3, 9});
  packed.cu_k = vector_of(DType::int64, {0, 5, 6, 12});
  packed.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
  packed.settings.dropout = Dropout{.p = 0.5, .seed = 3};
  packed.kv_lengths = vector_of(DType::int32, {5, 1, 4});
  Call alone = random_call({.b = 3, .hq = 2, .hkv = 1, .sq = 6, .sk = 4, .d = 4}, 9);  // its item 2 is sequence 2
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t n = 0; n < 6 * 4; ++n) alone.q.set((4 + h) * 24 + n, packed.q.get(h * 40 + 12 + n));
  }
  for (std::int64_t n = 0; n < 4 * 4; ++n) {
    alone.k.set(2 * 16 + n, packed.k.get(24 + n));
    alone.v.set(2 * 16 + n, packed.v.get(24 + n));
  }
  alone.settings = packed.settings;
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(row_of(packed, 3 + i, h).o, row_of(alone, i, h, 2).o);
      EXPECT_EQ(row_of(packed, 3 + i, h).lse, row_of(alone, i, h, 2).lse);
    }
  }
  EXPECT_EQ(row_of(packed, 9).lse, -infinity) << "no sequence owns row 9";
}

TEST(Oracle, PagesAreLookedUp) {
  Call plain = random_call({.sq = 1, .sk = 7, .d = 4}, 10);
  Call paged = plain;
  paged.k = Tensor(DType::float64, {4, 1, 2, 4});
  paged.v = Tensor(DType::float64, {4, 1, 2, 4});
  const std::int64_t table[] = {2, 0, 3, 1};
  paged.block_table = Tensor(DType::int32, {1, 4});
  for (std::int64_t n = 0; n < 4; ++n) paged.block_table.set(n, static_cast<double>(table[n]));
  for (std::int64_t n = 0; n < 7 * 4; ++n) {
    const std::int64_t at = table[n / 8] * 8 + n % 8;
    paged.k.set(at, plain.k.get(n));
    paged.v.set(at, plain.v.get(n));
  }
  paged.kv_lengths = vector_of(DType::int32, {7});
  EXPECT_EQ(row_of(paged, 0).o, row_of(plain, 0).o);
}

TEST(Oracle, DoesNotTouchInvisibleKeys) {
  Call call = random_call({.sq = 1, .sk = 4, .d = 4}, 11);
  const Call clean = call;
  for (std::int64_t n = 4; n < 16; ++n) {
    call.k.set(n, std::nan(""));
    call.v.set(n, infinity);
  }
  call.mask = vector_of(DType::boolean, {1, 0, 1, 1});
  call.bias = vector_of(DType::float32, {0, 0, -infinity, 0});
  call.kv_lengths = vector_of(DType::int32, {3});
  EXPECT_EQ(row_of(call, 0).o[0], clean.v.get(0));
}

TEST(Oracle, NonFiniteScores) {
  Call call = two_keys();
  call.k.set(1, -infinity);
  EXPECT_EQ(row_of(call, 0).o[0], 10) << "a score of -inf weighs 0";
  call.k.set(0, -infinity);
  EXPECT_EQ(row_of(call, 0).o[0], 0);
  EXPECT_EQ(row_of(call, 0).lse, -infinity);
  call.k.set(0, infinity);
  EXPECT_TRUE(std::isnan(row_of(call, 0).o[0]));
  EXPECT_TRUE(std::isnan(row_of(call, 0).lse));
  call = two_keys();
  call.v.set(1, std::nan(""));
  EXPECT_TRUE(std::isnan(row_of(call, 0).o[0]));
  EXPECT_FALSE(std::isnan(row_of(call, 0).lse));
}

// The published test vectors of Philox4x32-10 (Random123), read through the keep rule: with p = word / 2^32 a weight is
// kept, with the next p it is not.
TEST(Oracle, DropoutIsPhilox) {
  struct Vector {
    std::uint64_t seed;
    std::uint32_t offset;
    std::array<std::uint32_t, 4> words;
  };
  const Vector zero{0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}};
  Call call = random_call({.sq = 1, .sk = 4, .d = 4}, 12);
  fill(call.v, [](std::int64_t flat) { return flat / 4 == flat % 4 ? 1 : 0; });
  for (std::size_t j = 0; j < 4; ++j) {
    for (const int above : {0, 1}) {
      const double p = (static_cast<double>(zero.words[j]) + above) / 4294967296.0;
      call.settings.dropout = Dropout{.p = p, .seed = zero.seed, .offset = zero.offset};
      EXPECT_EQ(row_of(call, 0).o[j] != 0, above == 0) << "word " << j;
    }
  }
  const OracleRow dropped = row_of(call, 0);
  call.settings.dropout.reset();
  EXPECT_EQ(dropped.lse, row_of(call, 0).lse);
  call.settings.dropout = Dropout{.p = 1};
  EXPECT_EQ(row_of(call, 0).o, std::vector<double>(4, 0));
}

TEST(Oracle, DropoutScalesWhatItKeeps) {
  Call call = random_call({.b = 2, .hq = 2, .hkv = 2, .sq = 3, .sk = 200, .d = 4}, 13);
  fill_constant(call.v, 1);
  call.settings.dropout = Dropout{.p = 0.25, .seed = 77, .offset = 5};
  fill_constant(call.q, 0);
  double mean = 0;
  for (std::int64_t row = 0; row < 12; ++row) mean += row_of(call, row % 3, row / 3 % 2, row / 6).o[0] / 12;
  EXPECT_NEAR(mean, 1, 0.06) << "E[O] is O";
  // Equal queries and keys everywhere: only the pattern tells rows, heads and items apart.
  fill(call.v, [](std::int64_t flat) { return static_cast<double>(flat / 4 % 200 + 1); });
  const std::vector<double> first = row_of(call, 0).o;
  EXPECT_NE(row_of(call, 1).o, first);
  EXPECT_NE(row_of(call, 0, 1).o, first);
  EXPECT_NE(row_of(call, 0, 0, 1).o, first);
}

TEST(Oracle, NoDimensionNoKeys) {
  Call flat = random_call({.sq = 1, .sk = 5, .d = 0, .dv = 2}, 14);
  EXPECT_NEAR(row_of(flat, 0).lse, std::log(5.0), 1e-15);
  Call none = random_call({.sq = 1, .sk = 0, .d = 4}, 15);
  EXPECT_EQ(row_of(none, 0).lse, -infinity);
  EXPECT_EQ(row_of(none, 0).o, std::vector<double>(4, 0));
}

TEST(Naive, IsTheOracleToItsOwnPrecision) {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
    Call call = random_call({.sq = 4, .sk = 50, .d = 32}, 16, dtype);
    for (std::int64_t i = 0; i < 4; ++i) {
      const OracleRow exact = oracle_row(call.tensors(), call.options(), {0, 0, i});
      for (const SumOrder order : sum_orders) {
        const OracleRow naive = naive_row(call.tensors(), call.options(), {0, 0, i}, order);
        for (std::size_t d = 0; d < 32; ++d) {
          EXPECT_NEAR(naive.o[d], exact.o[d], 4 * epsilon_of(dtype)) << name_of(dtype);
          EXPECT_EQ(naive.o[d], rounded_to(dtype, naive.o[d])) << "rounded to O's dtype";
        }
        EXPECT_NEAR(naive.lse, exact.lse, 8 * epsilon_of(statistics_dtype(dtype))) << name_of(dtype);
      }
    }
  }
}

TEST(Random, DrawsWhatNumpyDraws) {
  NumpyUniform uniform(0);
  EXPECT_NEAR(uniform(), 0.5488135039, 1e-10);
  EXPECT_NEAR(uniform(), 0.7151893664, 1e-10);
}

TEST(Random, IsNormal) {
  Random random(1);
  double sum = 0;
  double squares = 0;
  for (int n = 0; n < 20000; ++n) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.04);
}

}  // namespace
}  // namespace tilewise::verify
