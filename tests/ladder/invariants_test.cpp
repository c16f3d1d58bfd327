// What holds for attention whatever the inputs: constant values, equal scores, huge scores, NaN, the worked example.

#include "ladder/rungs.h"

namespace tilewise::ladder_test {
namespace {

const BlockPair several_blocks[] = {{1, 1}, {2, 3}, {3, 2}, {7, 4}, {4, 7}, {16, 16}, {40, 5}};

template <class T>
class LadderInvariants : public testing::Test {};
using Precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(LadderInvariants, Precisions);

// Calls check(rung, blocks, causal, O) for every rung, block pair and mask.
template <class T, class Check>
void for_every_rung(const Inputs& inputs, Check check) {
  const auto in = typed<T>(inputs);
  for (const auto& rung : rungs<T>()) {
    for (const BlockPair blocks : several_blocks) {
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(testing::Message() << rung.name << " N=" << in.K.rows() << " causal=" << causal
                                        << " blocks=" << blocks.query_block << "," << blocks.key_block);
        check(rung, blocks, causal, rung.run(in, blocks, causal));
      }
    }
  }
}

// Weights sum to 1, so a padded or doubly counted key would show at once.
TYPED_TEST(LadderInvariants, ConstantValuesComeBack) {
  constexpr double eps = std::numeric_limits<TypeParam>::epsilon();
  for (const Index N : {1, 2, 5, 13, 16, 17, 33}) {
    Inputs inputs = gaussian_inputs(N, 8, 1);
    inputs.V = Matrix<double>(N, 8, 3.0);
    for_every_rung<TypeParam>(inputs, [&](const auto&, BlockPair, bool, const auto& O) {
      // u = 3 l up to the rounding of two sums of N terms.
      EXPECT_LE(largest_difference(O, inputs.V), 3 * eps * static_cast<double>(2 * N + 4));
    });
  }
}

TYPED_TEST(LadderInvariants, ZeroQueriesGiveTheMeanOfTheVisibleValues) {
  constexpr double eps = std::numeric_limits<TypeParam>::epsilon();
  for (const Index N : {1, 2, 5, 13, 16, 17, 33}) {
    Inputs inputs = gaussian_inputs(N, 3, 1);
    inputs.Q = Matrix<double>(N, 3);
    for_every_rung<TypeParam>(inputs, [&](const auto&, BlockPair, bool causal, const auto& O) {
      Matrix<double> mean(N, 3);
      for (Index i = 0; i < N; ++i) {
        const Index visible = causal ? i + 1 : N;
        for (Index d = 0; d < 3; ++d) {
          for (Index j = 0; j < visible; ++j) mean(i, d) += inputs.V(j, d) / static_cast<double>(visible);
        }
      }
      // Every weight is exactly 1 before normalisation: what remains is the rounding of a sum of N terms.
      EXPECT_LE(largest_difference(O, mean), largest_magnitude(inputs.V) * eps * static_cast<double>(2 * N + 4));
    });
  }
}

// Scores of +-1e4 overflow exp in both precisions unless the maximum is subtracted; the largest may come in any block.
TYPED_TEST(LadderInvariants, HugeScoresPickTheLargest) {
  const Index N = 12;
  for (Index top = 0; top < N; ++top) {
    for (const double sign : {1.0, -1.0}) {
      Inputs inputs{Matrix<double>(N, 1, 1), Matrix<double>(N, 1), gaussian(N, 1, 1, 5)};
      for (Index j = 0; j < N; ++j) inputs.K(j, 0) = sign * 1e4 - 100.0 * std::fabs(static_cast<double>(j - top));
      for_every_rung<TypeParam>(inputs, [&](const auto&, BlockPair, bool causal, const auto& O) {
        for (Index i = 0; i < N; ++i) {
          // The nearest visible key to `top` wins by 100: the others weigh below 2e-43 together.
          const Index winner = causal ? std::min(i, top) : top;
          EXPECT_NEAR(static_cast<double>(O(i, 0)), inputs.V(winner, 0), 1e-30) << "top=" << top << " row " << i;
        }
      });
    }
  }
}

// Both directions at once: a NaN that a query sees is in its row of O, one that it does not see changes not a bit.
TYPED_TEST(LadderInvariants, NanReachesExactlyTheRowsThatSeeIt) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Index N = 11;
  const Index D = 3;
  const Inputs clean = gaussian_inputs(N, D, 1);
  for (Index at = 0; at < N; ++at) {
    for (const char which : {'q', 'k', 'v'}) {
      Inputs inputs = clean;
      (which == 'q' ? inputs.Q : which == 'k' ? inputs.K : inputs.V)(at, 1) = nan;
      for_every_rung<TypeParam>(inputs, [&](const auto& rung, BlockPair blocks, bool causal, const auto& O) {
        const auto expected = rung.run(typed<TypeParam>(clean), blocks, causal);
        for (Index i = 0; i < N; ++i) {
          const bool sees = which == 'q' ? i == at : !causal || at <= i;
          for (Index d = 0; d < D; ++d) {
            const bool touched = sees && (which != 'v' || d == 1);
            if (touched) {
              EXPECT_TRUE(std::isnan(O(i, d))) << which << " at " << at << ", row " << i;
            } else {
              EXPECT_EQ(O(i, d), expected(i, d)) << which << " at " << at << ", row " << i;
            }
          }
        }
      });
    }
  }
}

// A visible score of -inf weighs 0, one of +inf makes the row NaN; neither disturbs another row.
TYPED_TEST(LadderInvariants, InfiniteScores) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Index N = 9;
  Inputs inputs{Matrix<double>(N, 1, 1), gaussian(N, 1, 1, 6), gaussian(N, 1, 1, 7)};
  inputs.Q(6, 0) = -1;  // the only row for which the key below scores +inf
  inputs.K(4, 0) = -infinity;
  // Scores and values stay below 4: a few roundings of D = 1 scores and sums of 9 terms.
  const double tolerance = 64 * static_cast<double>(std::numeric_limits<TypeParam>::epsilon());
  for_every_rung<TypeParam>(inputs, [&](const auto&, BlockPair, bool causal, const auto& O) {
    for (Index i = 0; i < N; ++i) {
      if (i == 6) {
        EXPECT_TRUE(std::isnan(O(i, 0)));
        continue;
      }
      double weight = 0;
      double sum = 0;
      for (Index j = 0; j < N && (!causal || j <= i); ++j) {
        if (j == 4) continue;
        weight += std::exp(inputs.Q(i, 0) * inputs.K(j, 0));
        sum += std::exp(inputs.Q(i, 0) * inputs.K(j, 0)) * inputs.V(j, 0);
      }
      EXPECT_NEAR(static_cast<double>(O(i, 0)), sum / weight, tolerance);
    }
  });
}

// The example that all chapters of docs/ladder use: scores ln 1, ln 2 | ln 3, ln 4 and values 10, 20 | 30, 40.
TYPED_TEST(LadderInvariants, WorkedExampleOfTheChapters) {
  constexpr double tolerance = 40 * 8 * std::numeric_limits<TypeParam>::epsilon();  // results up to 75, a few roundings
  Matrix<TypeParam> scores(1, 4);
  Matrix<TypeParam> K(4, 1);
  Matrix<TypeParam> V(4, 1);
  for (Index j = 0; j < 4; ++j) {
    scores(0, j) = K(j, 0) = std::log(static_cast<TypeParam>(j + 1));
    V(j, 0) = static_cast<TypeParam>(10 * (j + 1));
  }
  const Matrix<TypeParam> q(1, 1, 1);
  const auto p = reference::online_softmax(scores, 2);
  for (Index j = 0; j < 4; ++j) EXPECT_NEAR(p(0, j), 0.1 * static_cast<double>(j + 1), tolerance);
  EXPECT_NEAR(reference::one_query_attention(q, K, V, 2)(0, 0), 30, tolerance);

  const auto left = reference::partial_attention(q, K, V, 0, 2, 2, false);
  const auto right = reference::partial_attention(q, K, V, 2, 4, 2, false);
  const auto both = reference::merge(left, right);
  EXPECT_NEAR(left.m(0, 0), std::log(2.0), tolerance);
  EXPECT_NEAR(left.l(0, 0), 1.5, tolerance);
  EXPECT_NEAR(left.u(0, 0), 25, tolerance);
  EXPECT_NEAR(right.m(0, 0), std::log(4.0), tolerance);
  EXPECT_NEAR(right.l(0, 0), 1.75, tolerance);
  EXPECT_NEAR(right.u(0, 0), 62.5, tolerance);
  EXPECT_NEAR(both.l(0, 0), 2.5, tolerance);
  EXPECT_NEAR(both.u(0, 0), 75, tolerance);
}

}  // namespace
}  // namespace tilewise::ladder_test
