// Every rung against the definition over sizes, block sizes, masks, precisions and magnitudes.

#include "ladder/rungs.h"

namespace tilewise::ladder_test {
namespace {

template <class T>
void sweep(double spread) {
  const auto all = rungs<T>();
  for (const Index D : {1, 2, 3, 8, 32, 64}) {
    for (const Index N : sequence_lengths()) {
      if (N > 40 && D != 3 && (SANITIZED || D != 64)) continue;  // most of the time would go here, for no new edge
      const Inputs inputs = gaussian_inputs(N, D, spread);
      const auto in = typed<T>(inputs);
      for (const bool causal : {false, true}) {
        const Definition expected = definition(inputs, causal);
        const double bound = largest_magnitude(inputs.V) * relative_bound<T>(N, D, expected.largest_score);
        for (const auto& rung : all) {
          for (const BlockPair blocks : blocks_for(rung.blocks, N)) {
            ASSERT_LE(largest_difference(rung.run(in, blocks, causal), expected.O), bound)
                << rung.name << " N=" << N << " D=" << D << " causal=" << causal << " blocks=" << blocks.query_block
                << "," << blocks.key_block;
          }
        }
      }
    }
  }
}

TEST(LadderSweep, DoubleGaussian) { sweep<double>(1); }
TEST(LadderSweep, DoubleThirtyTimesGaussian) { sweep<double>(30); }
TEST(LadderSweep, FloatGaussian) { sweep<float>(1); }
TEST(LadderSweep, FloatThirtyTimesGaussian) { sweep<float>(30); }

// The house's rule for float32: at most twice the error of the naive formula in float32, plus eps/4
// in relative L2 (from 64 elements on) and plus eps * max |reference| in the maximum.
TEST(LadderPrecision, FloatIsAsGoodAsTheNaiveFormula) {
  constexpr double eps = std::numeric_limits<float>::epsilon();
  for (const Index D : {32, 64}) {
    for (const Index N : {40, 64, 129, 300}) {
      const Inputs inputs = gaussian_inputs(N, D, 1);
      const auto in = typed<float>(inputs);
      for (const bool causal : {false, true}) {
        const Definition expected = definition(inputs, causal);
        const auto naive = reference::standard_attention(in.Q, in.K, in.V, causal).O;
        const double l2_bound = 2 * relative_l2_error(naive, expected.O) + eps / 4;
        const double bound = 2 * largest_difference(naive, expected.O) + eps * largest_magnitude(expected.O);
        for (const auto& rung : rungs<float>()) {
          for (const BlockPair blocks : {BlockPair{1, 1}, BlockPair{16, 7}, BlockPair{64, 64}}) {
            const auto O = rung.run(in, blocks, causal);
            EXPECT_LE(relative_l2_error(O, expected.O), l2_bound)
                << rung.name << " N=" << N << " D=" << D << " causal=" << causal << " key_block=" << blocks.key_block;
            EXPECT_LE(largest_difference(O, expected.O), bound)
                << rung.name << " N=" << N << " D=" << D << " causal=" << causal << " key_block=" << blocks.key_block;
          }
        }
      }
    }
  }
}

TEST(StandardAttention, KeepsTheScoresAndTheWeights) {
  for (const bool causal : {false, true}) {
    const Inputs inputs = gaussian_inputs(13, 8, 1);
    const Definition expected = definition(inputs, causal);
    const auto actual = reference::standard_attention(inputs.Q, inputs.K, inputs.V, causal);
    EXPECT_LE(largest_difference(actual.P, expected.P), relative_bound<double>(13, 8, expected.largest_score));
    for (Index i = 0; i < 13; ++i) {
      for (Index j = 0; j < 13; ++j) {
        if (causal && j > i) {
          EXPECT_EQ(actual.S(i, j), -std::numeric_limits<double>::infinity());
          EXPECT_EQ(actual.P(i, j), 0);
        } else {
          // Weights are exponentials of scores: their ratios give the scores back.
          EXPECT_NEAR(actual.S(i, j) - actual.S(i, 0), std::log(expected.P(i, j) / expected.P(i, 0)), 1e-13);
        }
      }
    }
  }
}

template <class T>
void sweep_rows_of_scores(double spread) {
  for (const Index N : sequence_lengths()) {
    const Matrix<double> x = gaussian(1, N, spread, static_cast<std::uint32_t>(N));
    double sum = 0;
    const double largest = *std::max_element(x.data(), x.data() + N);
    for (Index j = 0; j < N; ++j) sum += std::exp(x(0, j) - largest);
    Matrix<double> expected(1, N);
    for (Index j = 0; j < N; ++j) expected(0, j) = std::exp(x(0, j) - largest) / sum;
    for (const Index block : block_sizes(N)) {
      const auto p = reference::online_softmax(converted<T>(x), block);
      // As relative_bound, but scores are exact: only their differences are rounded.
      const double bound = relative_bound<T>(N, 0, largest_magnitude(x));
      ASSERT_LE(largest_difference(p, expected), bound) << "N=" << N << " block=" << block;
    }
  }
}

TEST(OnlineSoftmax, Double) { sweep_rows_of_scores<double>(1); }
TEST(OnlineSoftmax, DoubleLarge) { sweep_rows_of_scores<double>(300); }
TEST(OnlineSoftmax, Float) { sweep_rows_of_scores<float>(1); }
TEST(OnlineSoftmax, FloatLarge) { sweep_rows_of_scores<float>(300); }

}  // namespace
}  // namespace tilewise::ladder_test
