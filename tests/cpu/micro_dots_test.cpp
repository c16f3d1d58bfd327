// The micro-kernels of few queries against their definitions, on every instruction set of this machine.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/micro_fixture.hpp"

namespace tilewise::micro {
namespace {

template <class T>
using MicroDots = Micro<T>;
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(MicroDots, Types);

// Every number of keys around a group of 4, every number of queries around a group of them.
TYPED_TEST(MicroDots, ScoresAreDotProducts) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(1);
    constexpr std::int64_t queries_at_most = 9;
    constexpr std::int64_t s_row = 16;
    for (const std::int64_t depth : {std::int64_t{0}, std::int64_t{f.lanes}, std::int64_t{5 * f.lanes}}) {
      for (std::int64_t keys = 1; keys <= 13; ++keys) {
        for (std::int64_t queries = 1; queries <= queries_at_most; ++queries) {
          const std::int64_t k_row = depth + 3;
          Aligned<T> k(keys * k_row), q(queries * depth), s(queries * s_row);
          k.fill(random);
          q.fill(random);
          f.dots(k.data(), k_row, keys, q.data(), queries, depth, s.data(), s_row);
          for (std::int64_t i = 0; i < queries; ++i) {
            for (std::int64_t key = 0; key < keys; ++key) {
              ExactSum dot;
              for (std::int64_t d = 0; d < depth; ++d) {
                dot.add(static_cast<double>(k[key * k_row + d]) * static_cast<double>(q[i * depth + d]));
              }
              EXPECT_NEAR(s[i * s_row + key], dot.value,
                          dot.size * std::numeric_limits<T>::epsilon() * static_cast<double>(depth + 1));
            }
            for (std::int64_t key = (keys + 3) / 4 * 4; key < s_row; ++key) {
              EXPECT_TRUE(std::isnan(s[i * s_row + key])) << "a score beyond the last group of keys was written";
            }
          }
        }
      }
    }
  });
}

// A query's bits do not depend on how many others share the pass: a shorter sequence has fewer.
TYPED_TEST(MicroDots, AQueryHasTheSameBitsInAnyGroup) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(2);
    constexpr std::int64_t queries = 7;
    constexpr std::int64_t keys = 12;
    const std::int64_t depth = 3 * f.lanes;
    Aligned<T> k(keys * depth), q(queries * depth), all(queries * keys), one(keys);
    k.fill(random);
    q.fill(random);
    f.dots(k.data(), depth, keys, q.data(), queries, depth, all.data(), keys);
    for (std::int64_t i = 0; i < queries; ++i) {
      f.dots(k.data(), depth, keys, q.data() + i * depth, 1, depth, one.data(), keys);
      EXPECT_EQ(std::memcmp(one.data(), all.data() + i * keys, sizeof(T) * keys), 0) << "query " << i;
    }
  });
}

TYPED_TEST(MicroDots, ValuesAreWeightedSumsAndTheirWeights) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(3);
    constexpr std::int64_t keys = 21;
    constexpr std::int64_t p_row = 24;
    for (int vectors = 1; vectors <= 9; ++vectors) {
      const std::int64_t columns = std::int64_t{vectors} * f.lanes;
      for (std::int64_t queries = 1; queries <= 9; ++queries) {
        Aligned<T> v(keys * (columns + 5)), p(queries * p_row), alpha(queries), o(queries * columns), l(queries);
        Aligned<T> o_before(queries * columns), l_before(queries);
        for (Aligned<T>* input : {&v, &p, &alpha, &o_before, &l_before}) input->fill(random);
        std::memcpy(o.data(), o_before.data(), sizeof(T) * static_cast<std::size_t>(queries * columns));
        std::memcpy(l.data(), l_before.data(), sizeof(T) * static_cast<std::size_t>(queries));
        f.values(v.data(), columns + 5, keys, columns, p.data(), p_row, queries, alpha.data(), o.data(), l.data());
        for (std::int64_t i = 0; i < queries; ++i) {
          ExactSum weights;
          weights.add(static_cast<double>(l_before[i]));
          for (std::int64_t key = 0; key < keys; ++key) weights.add(static_cast<double>(p[i * p_row + key]));
          EXPECT_NEAR(l[i], weights.value, weights.size * std::numeric_limits<T>::epsilon() * keys);
          for (std::int64_t c = 0; c < columns; ++c) {
            ExactSum sum;
            sum.add(static_cast<double>(alpha[i]) * static_cast<double>(o_before[i * columns + c]));
            for (std::int64_t key = 0; key < keys; ++key) {
              sum.add(static_cast<double>(p[i * p_row + key]) * static_cast<double>(v[key * (columns + 5) + c]));
            }
            EXPECT_NEAR(o[i * columns + c], sum.value, sum.size * std::numeric_limits<T>::epsilon() * (keys + 2));
          }
        }
      }
    }
  });
}

TYPED_TEST(MicroDots, SelectionHasTheSameBitsAndIgnoresWhatIsInvisible) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(4);
    constexpr std::int64_t keys = 23;
    const std::int64_t columns = 5 * f.lanes;
    Aligned<T> p(keys), seen(keys), v(keys * columns), alpha(1), o(columns), selected(columns), l(1), l_selected(1);
    for (Aligned<T>* input : {&p, &v, &alpha, &o, &l}) input->fill(random);
    for (std::int64_t key = 0; key < keys; ++key) {
      seen[key] = key == 7 || random.below(3) == 0 ? T(0) : T(1);
      if (seen[key] == T(0)) p[key] = T(0);
    }
    std::memcpy(selected.data(), o.data(), sizeof(T) * static_cast<std::size_t>(columns));
    l_selected[0] = l[0];
    f.values(v.data(), columns, keys, columns, p.data(), keys, 1, alpha.data(), o.data(), l.data());
    for (std::int64_t c = 0; c < columns; ++c) v[7 * columns + c] = std::numeric_limits<T>::quiet_NaN();
    f.values_by_selection(v.data(), columns, keys, columns, p.data(), seen.data(), alpha[0], selected.data(),
                          l_selected.data());
    EXPECT_EQ(std::memcmp(o.data(), selected.data(), sizeof(T) * static_cast<std::size_t>(columns)), 0);
    EXPECT_EQ(l[0], l_selected[0]);
  });
}

}  // namespace
}  // namespace tilewise::micro
