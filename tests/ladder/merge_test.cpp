// The laws of merge: an identity, order, association, any number of splits.

#include "ladder/rungs.h"

namespace tilewise::ladder_test {
namespace {

using reference::merge;
using reference::normalise;
using reference::Part;
using reference::partial_attention;

template <class T>
class MergeLaws : public testing::Test {};
using Precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(MergeLaws, Precisions);

template <class T>
Part<T> part_of(const TypedInputs<T>& in, Index begin, Index end, bool causal) {
  return partial_attention(in.Q, in.K, in.V, begin, end, 3, causal);
}

template <class T>
void expect_identical(const Matrix<T>& a, const Matrix<T>& b) {
  ASSERT_EQ(a.rows(), b.rows());
  ASSERT_EQ(a.columns(), b.columns());
  for (Index n = 0; n < a.rows() * a.columns(); ++n) EXPECT_EQ(a.data()[n], b.data()[n]);
}

template <class T>
void expect_identical(const Part<T>& a, const Part<T>& b) {
  expect_identical(a.m, b.m);
  expect_identical(a.l, b.l);
  expect_identical(a.u, b.u);
}

TYPED_TEST(MergeLaws, AnEmptyPartIsTheIdentityExactly) {
  for (const double spread : {1.0, 30.0}) {
    const auto in = typed<TypeParam>(gaussian_inputs(17, 8, spread));
    const auto empty = part_of(in, 9, 9, false);
    for (const bool causal : {false, true}) {
      // Causal, the keys from 8 on: rows 0 to 7 of the part are empty, the others are not.
      const auto part = part_of(in, 8, 17, causal);
      expect_identical(merge(part, empty), part);
      expect_identical(merge(empty, part), part);
    }
    expect_identical(merge(empty, empty), empty);
    expect_identical(normalise(empty), Matrix<TypeParam>(17, 8));
  }
}

TYPED_TEST(MergeLaws, OrderDoesNotMatter) {
  const auto in = typed<TypeParam>(gaussian_inputs(23, 8, 30));
  for (const bool causal : {false, true}) {
    for (Index cut = 0; cut <= 23; ++cut) {
      const auto a = part_of(in, 0, cut, causal);
      const auto b = part_of(in, cut, 23, causal);
      const auto ab = merge(a, b);
      const auto ba = merge(b, a);
      expect_identical(ab.m, ba.m);
      // Without fused multiply-add both sums have the same operands; with it one product is left unrounded.
      constexpr TypeParam eps = std::numeric_limits<TypeParam>::epsilon();
      for (Index i = 0; i < 23; ++i) {
        EXPECT_NEAR(ab.l(i, 0), ba.l(i, 0), 2 * eps * ab.l(i, 0));
        for (Index d = 0; d < 8; ++d) {
          EXPECT_NEAR(ab.u(i, d), ba.u(i, d), 2 * eps * 100 * ab.l(i, 0));  // |u| is at most l * max |V| < 100 l
        }
      }
    }
  }
}

TYPED_TEST(MergeLaws, AssociationDoesNotMatter) {
  for (const double spread : {1.0, 30.0}) {
    const Inputs inputs = gaussian_inputs(19, 8, spread);
    const auto in = typed<TypeParam>(inputs);
    for (const bool causal : {false, true}) {
      const Definition expected = definition(inputs, causal);
      const double bound = largest_magnitude(inputs.V) * relative_bound<TypeParam>(19, 8, expected.largest_score);
      for (Index first = 0; first <= 19; ++first) {
        for (Index second = first; second <= 19; ++second) {
          const auto a = part_of(in, 0, first, causal);
          const auto b = part_of(in, first, second, causal);
          const auto c = part_of(in, second, 19, causal);
          const auto left = merge(merge(a, b), c);
          const auto right = merge(a, merge(b, c));
          expect_identical(left.m, right.m);  // a maximum is never rounded
          ASSERT_LE(largest_difference(normalise(left), expected.O), bound) << first << ", " << second;
          ASSERT_LE(largest_difference(normalise(right), expected.O), bound) << first << ", " << second;
          ASSERT_LE(largest_difference(normalise(merge(c, merge(a, b))), expected.O), bound) << first << ", " << second;
        }
      }
    }
  }
}

// Uneven cuts at random positions, several of them equal, so that parts of 0 keys occur; merged in a random order and
// pairwise, as a tree.
TYPED_TEST(MergeLaws, OneToSixteenParts) {
  std::mt19937 generator(7);
  for (const Index N : {1, 5, 37, 64}) {
    const Inputs inputs = gaussian_inputs(N, 8, 3);
    const auto in = typed<TypeParam>(inputs);
    for (const bool causal : {false, true}) {
      const Definition expected = definition(inputs, causal);
      const double bound = largest_magnitude(inputs.V) * relative_bound<TypeParam>(N, 8, expected.largest_score);
      for (std::size_t count = 1; count <= 16; ++count) {
        std::vector<Index> cuts(count + 1, 0);
        for (std::size_t n = 1; n < count; ++n)
          cuts[n] = static_cast<Index>(generator() % static_cast<unsigned>(N + 1));
        cuts[count] = N;
        std::sort(cuts.begin(), cuts.end());
        std::vector<Part<TypeParam>> parts;
        for (std::size_t n = 0; n < count; ++n) parts.push_back(part_of(in, cuts[n], cuts[n + 1], causal));
        std::shuffle(parts.begin(), parts.end(), generator);

        Part<TypeParam> chain = parts[0];
        for (std::size_t n = 1; n < count; ++n) chain = merge(chain, parts[n]);
        while (parts.size() > 1) {
          std::vector<Part<TypeParam>> half;
          for (std::size_t n = 0; n + 1 < parts.size(); n += 2) half.push_back(merge(parts[n], parts[n + 1]));
          if (parts.size() % 2 == 1) half.push_back(parts.back());
          parts = half;
        }
        ASSERT_LE(largest_difference(normalise(chain), expected.O), bound) << "N=" << N << " parts=" << count;
        ASSERT_LE(largest_difference(normalise(parts[0]), expected.O), bound) << "N=" << N << " parts=" << count;
      }
    }
  }
}

}  // namespace
}  // namespace tilewise::ladder_test
