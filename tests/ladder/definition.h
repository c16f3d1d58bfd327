#pragma once

// Attention in float64, straight from the definition, for the tests of the ladder only: it shares nothing with the
// rungs but Matrix, and nothing with src/verify. Also inputs, errors and the tolerance.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "reference/matrix.h"

namespace tilewise::ladder_test {

using reference::Index;
using reference::Matrix;

struct Inputs {
  Matrix<double> Q;
  Matrix<double> K;
  Matrix<double> V;
};

template <class T>
Matrix<T> converted(const Matrix<double>& from) {
  Matrix<T> to(from.rows(), from.columns());
  std::transform(from.data(), from.data() + from.rows() * from.columns(), to.data(),
                 [](double x) { return static_cast<T>(x); });
  return to;
}

// N(0, 1) times `spread`, rounded to float so that the float and the double rungs and the definition see one input.
inline Matrix<double> gaussian(Index rows, Index columns, double spread, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Matrix<double> result(rows, columns);
  std::generate(result.data(), result.data() + rows * columns,
                [&] { return static_cast<double>(static_cast<float>(spread * normal(generator))); });
  return result;
}

inline Inputs gaussian_inputs(Index N, Index D, double spread) {
  const auto seed = static_cast<std::uint32_t>(1000 * N + D);
  return {gaussian(N, D, spread, 3 * seed), gaussian(N, D, spread, 3 * seed + 1), gaussian(N, D, spread, 3 * seed + 2)};
}

struct Definition {
  Matrix<double> P;
  Matrix<double> O;
  double largest_score = 0;  // the largest sum over d of |q_d k_d| / sqrt(D), over visible pairs
};

// Works with the scores of one row at a time, in the order of the formula; all values must be finite.
inline Definition definition(const Inputs& in, bool causal) {
  const Index N = in.K.rows();
  const Index D = in.K.columns();
  Definition result{Matrix<double>(N, N), Matrix<double>(N, in.V.columns()), 0};
  for (Index i = 0; i < N; ++i) {
    std::vector<double> scores;
    for (Index j = 0; j < N && (!causal || j <= i); ++j) {
      double dot = 0;
      double magnitude = 0;
      for (Index d = 0; d < D; ++d) {
        dot += in.Q(i, d) * in.K(j, d);
        magnitude += std::fabs(in.Q(i, d) * in.K(j, d));
      }
      scores.push_back(dot / std::sqrt(static_cast<double>(D)));
      result.largest_score = std::max(result.largest_score, magnitude / std::sqrt(static_cast<double>(D)));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - largest);
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const auto key = static_cast<Index>(j);
      result.P(i, key) = std::exp(scores[j] - largest) / sum;
      for (Index d = 0; d < in.V.columns(); ++d) result.O(i, d) += result.P(i, key) * in.V(key, d);
    }
  }
  return result;
}

inline double largest_magnitude(const Matrix<double>& x) {
  double largest = 0;
  for (Index n = 0; n < x.rows() * x.columns(); ++n) largest = std::max(largest, std::fabs(x.data()[n]));
  return largest;
}

// An upper bound, to first order in eps, of the error of any rung and of the definition together. A dot product of D
// terms, scaled, is wrong by at most (D + 2) eps times the sum of its magnitudes, s; subtracting the maximum and the
// chain of rescaling factors, which telescopes, add at most 4 eps s; so a weight is wrong by (D + 6) eps s of itself.
// Summing N terms and rescaling at most N times costs 2 N eps, exp and the rest a few. Numerator and denominator both
// err: twice the whole. An error in O is at most that times max |V|.
template <class T>
double relative_bound(Index N, Index D, double s) {
  constexpr double eps = std::numeric_limits<T>::epsilon();
  return 2 * eps * (static_cast<double>(D + 6) * s + 2 * static_cast<double>(N) + 16);
}

// For a NaN anywhere the result is a NaN, and every comparison with a bound fails.
template <class T>
double largest_difference(const Matrix<T>& actual, const Matrix<double>& expected) {
  if (actual.rows() != expected.rows() || actual.columns() != expected.columns()) {
    ADD_FAILURE() << "shape [" << actual.rows() << ", " << actual.columns() << "], expected [" << expected.rows()
                  << ", " << expected.columns() << "]";
    return std::numeric_limits<double>::quiet_NaN();
  }
  double largest = 0;
  for (Index n = 0; n < actual.rows() * actual.columns(); ++n) {
    const double difference = std::fabs(static_cast<double>(actual.data()[n]) - expected.data()[n]);
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(difference)) return difference;
  }
  return largest;
}

template <class T>
double relative_l2_error(const Matrix<T>& actual, const Matrix<double>& expected) {
  double error = 0;
  double norm = 0;
  for (Index n = 0; n < actual.rows() * actual.columns(); ++n) {
    const double difference = static_cast<double>(actual.data()[n]) - expected.data()[n];
    error += difference * difference;
    norm += expected.data()[n] * expected.data()[n];
  }
  return std::sqrt(error / norm);
}

inline std::vector<Index> sequence_lengths() {
  std::vector<Index> lengths;
  for (Index N = 1; N <= 40; ++N) lengths.push_back(N);
  for (const Index N : {63, 64, 65, 127, 128, 129}) lengths.push_back(N);
  return lengths;
}

inline std::vector<Index> block_sizes(Index N) { return {1, 2, 3, 7, 16, N, N + 5}; }

struct BlockPair {
  Index query_block;
  Index key_block;
};

// Every pair of block_sizes(N) up to N = 20; beyond, a choice of unequal, ragged and extreme ones.
inline std::vector<BlockPair> block_pairs(Index N) {
  if (N > 20) return {{1, 16}, {16, 1}, {7, 16}, {16, 7}, {3, N}, {N, 3}, {N + 5, 16}};
  std::vector<BlockPair> pairs;
  for (const Index query_block : block_sizes(N)) {
    for (const Index key_block : block_sizes(N)) pairs.push_back({query_block, key_block});
  }
  return pairs;
}

enum class Blocks : std::uint8_t { none, keys, both };  // which block sizes a rung takes

inline std::vector<BlockPair> blocks_for(Blocks blocks, Index N) {
  if (blocks == Blocks::both) return block_pairs(N);
  if (blocks == Blocks::none) return {{1, 1}};
  std::vector<BlockPair> pairs;
  for (const Index key_block : block_sizes(N)) pairs.push_back({1, key_block});
  return pairs;
}

}  // namespace tilewise::ladder_test
