#pragma once

// Whole rows: random scores in blocks, part of them masked, against the definition in long double; and the laws of
// merge over random partitions of the keys. Each lane is a row of its own, of any kind, beside rows of other kinds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/softmax_rules.h"
#include "core/softmax_target.h"

namespace tilewise::softmax_rules {

enum class RowKind {
  ordinary,
  mostly_masked,
  no_key,
  wide,     // scores far beyond the range of exp2
  huge,     // scores near the ends of the type
  has_nan,  // one visible score is NaN
  has_inf,  // one visible score is +inf
  rising,   // the maximum grows with every key
  one_key,
};
inline constexpr int row_kinds = 9;

// scores[key][row], in log2 units; -inf is masked. One column of values each.
template <class T>
struct Problem {
  std::vector<RowKind> kinds;
  std::vector<Array<T>> scores;
  std::vector<Array<T>> values;
  [[nodiscard]] std::size_t rows() const { return kinds.size(); }
  [[nodiscard]] std::size_t keys() const { return scores.size(); }
};

template <class T>
Problem<T> random_problem(std::size_t keys, std::size_t rows, unsigned seed) {
  using S = Special<T>;
  std::mt19937 random(seed);
  const auto uniform = [&](double low, double high) {
    return static_cast<T>(std::uniform_real_distribution<double>(low, high)(random));
  };
  Problem<T> problem;
  problem.scores.assign(keys, Array<T>(rows, -S::inf));
  problem.values.assign(keys, Array<T>(rows, T(0)));
  for (std::size_t row = 0; row < rows; ++row) {
    const auto kind = static_cast<RowKind>(row % row_kinds);
    problem.kinds.push_back(kind);
    const std::size_t special = random() % keys;
    for (std::size_t key = 0; key < keys; ++key) {
      problem.values[key][row] = uniform(-1, 3);
      T& score = problem.scores[key][row];
      const bool masked = uniform(0, 1) < (kind == RowKind::mostly_masked ? T(0.9) : T(0.2));
      switch (kind) {
        case RowKind::no_key: break;
        case RowKind::one_key:
          if (key == special) score = uniform(-200, 200);
          break;
        case RowKind::wide:
          if (!masked) score = uniform(-3000, 3000);
          break;
        case RowKind::huge:
          if (!masked) score = uniform(-1, 1) * S::highest;
          break;
        case RowKind::rising: score = static_cast<T>(key) * T(0.75) - T(20); break;
        case RowKind::has_nan:
        case RowKind::has_inf:
          if (key == special) {
            score = kind == RowKind::has_nan ? S::nan : S::inf;
            break;
          }
          [[fallthrough]];
        case RowKind::ordinary:
        case RowKind::mostly_masked:
          if (!masked) score = uniform(-12, 12);
          break;
      }
    }
  }
  return problem;
}

// Unnormalised output beside its rows: what a kernel carries from block to block.
template <class T>
struct Partial {
  RowsArray<T> rows;
  Array<T> u;
};

template <class T>
Partial<T> empty_partial(const SoftmaxTarget<T>& target, std::size_t rows) {
  return {target.no_keys(rows), Array<T>(rows, T(0))};
}

// As a kernel does it: the block's maximum, growth, weights, rescaled output.
template <class T>
void add_block(const SoftmaxTarget<T>& target, const Problem<T>& problem, const std::vector<std::size_t>& keys,
               Partial<T>& partial) {
  const std::size_t n = problem.rows();
  Array<T> block_max(n, -Special<T>::inf);
  for (const std::size_t key : keys) block_max = target.max(block_max, problem.scores[key]);
  const GrownArray<T> grown = target.grow(partial.rows, block_max);
  Array<T> sum(n, T(0));
  for (std::size_t row = 0; row < n; ++row) partial.u[row] *= grown.alpha[row];
  for (const std::size_t key : keys) {
    const Array<T> weight = target.weight(problem.scores[key], grown.rows.m);
    for (std::size_t row = 0; row < n; ++row) {
      sum[row] += weight[row];
      partial.u[row] += weight[row] * problem.values[key][row];
    }
  }
  partial.rows = target.add(grown.rows, sum);
}

template <class T>
Partial<T> merged(const SoftmaxTarget<T>& target, const Partial<T>& a, const Partial<T>& b) {
  const MergedArray<T> m = target.merge(a.rows, b.rows);
  Partial<T> out{m.rows, Array<T>(a.u.size())};
  for (std::size_t row = 0; row < a.u.size(); ++row) out.u[row] = a.u[row] * m.wa[row] + b.u[row] * m.wb[row];
  return out;
}

// The definition: softmax over the keys that are not masked, and over the sink when there is one (log2 units).
template <class T>
struct Expected {
  long double o = 0;
  long double lse = -std::numeric_limits<long double>::infinity();
  long double magnitude = 0;  // sum of |weight * value|: what rounding errors of o are relative to
};

template <class T>
Expected<T> by_definition(const Problem<T>& problem, std::size_t row, T sink) {
  long double highest = -std::numeric_limits<long double>::infinity();
  bool finite = std::isfinite(sink) || sink == -Special<T>::inf;
  if (sink > -Special<T>::inf) highest = sink;
  for (std::size_t key = 0; key < problem.keys(); ++key) {
    const T score = problem.scores[key][row];
    finite = finite && (std::isfinite(score) || score == -Special<T>::inf);
    highest = std::max<long double>(highest, score);
  }
  Expected<T> expected;
  if (!finite) {
    expected.o = expected.lse = std::numeric_limits<long double>::quiet_NaN();
    return expected;
  }
  if (std::isinf(highest)) return expected;
  long double sum = sink == -Special<T>::inf ? 0 : std::exp2(static_cast<long double>(sink) - highest);
  for (std::size_t key = 0; key < problem.keys(); ++key) {
    const T score = problem.scores[key][row];
    if (score == -Special<T>::inf) continue;
    const long double weight = std::exp2(static_cast<long double>(score) - highest);
    sum += weight;
    expected.o += weight * problem.values[key][row];
    expected.magnitude += weight * std::fabs(static_cast<long double>(problem.values[key][row]));
  }
  expected.o /= sum;
  expected.magnitude /= sum;
  expected.lse = (highest + std::log2(sum)) * 0.69314718055994530941723212145817657L;
  return expected;
}

// `sinks` by row, -inf for none. Every power carries the target's error and that of its rounded argument.
template <class T>
void expect_rows(const SoftmaxTarget<T>& target, const Problem<T>& problem, const Array<T>& sinks,
                 const Partial<T>& partial, const std::string& what) {
  const Array<T> inverse = target.inverse_sum(partial.rows);
  const Array<T> lse = target.lse(partial.rows);
  const long double tolerance = 16.0L * target.tolerance();
  const long double underflow = 4.0L * static_cast<long double>(problem.keys()) * Special<T>::tiny;
  for (std::size_t row = 0; row < problem.rows(); ++row) {
    const Expected<T> expected = by_definition(problem, row, sinks[row]);
    const T o = partial.u[row] * inverse[row];
    const std::string text = what + ", row " + std::to_string(row) + " of kind " +
                             std::to_string(static_cast<int>(problem.kinds[row])) + ", sink " +
                             std::to_string(sinks[row]);
    const long double error = std::fabs(o - expected.o);
    EXPECT_TRUE(std::isnan(expected.o) ? std::isnan(o) : error <= tolerance * expected.magnitude + underflow)
        << text << ": o is " << o << ", not " << expected.o;
    EXPECT_TRUE(near(lse[row], expected.lse, tolerance) || std::fabs(lse[row] - expected.lse) <= tolerance)
        << text << ": lse is " << lse[row] << ", not " << expected.lse;
  }
}

template <class T>
Array<T> no_sinks(std::size_t rows) {
  return Array<T>(rows, -Special<T>::inf);
}

inline std::vector<std::vector<std::size_t>> blocks_of(std::size_t keys, std::size_t size) {
  std::vector<std::vector<std::size_t>> blocks;
  for (std::size_t key = 0; key < keys; ++key) {
    if (key % size == 0) blocks.emplace_back();
    blocks.back().push_back(key);
  }
  return blocks;
}

// Any block size gives the definition, with and without sinks. An empty row is O = 0, LSE = -inf, or LSE = sink.
template <class T>
void check_rows(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  constexpr std::size_t rows = 7 * row_kinds;
  const std::vector<T> sink_values{-S::inf, T(0), T(9), T(-300), S::nan, S::inf, S::lowest};
  Array<T> sinks;
  for (std::size_t row = 0; row < rows; ++row) sinks.push_back(sink_values[row / row_kinds]);
  for (const std::size_t keys : {1u, 2u, 7u, 33u, 64u}) {
    const Problem<T> problem = random_problem<T>(keys, rows, static_cast<unsigned>(keys));
    for (const std::size_t block : {1u, 3u, 16u, 64u}) {
      const std::string what = std::to_string(keys) + " keys in blocks of " + std::to_string(block);
      Partial<T> plain = empty_partial(target, rows);
      Partial<T> with_sinks{target.sink_only(sinks), Array<T>(rows, T(0))};
      for (const auto& keys_of_block : blocks_of(keys, block)) {
        add_block(target, problem, keys_of_block, plain);
        add_block(target, problem, keys_of_block, with_sinks);
      }
      expect_rows(target, problem, no_sinks<T>(rows), plain, what);
      expect_rows(target, problem, sinks, with_sinks, what + " after sinks");
      // A sink may come last as well: it is a part without output.
      expect_rows(target, problem, sinks, merged(target, plain, {target.sink_only(sinks), Array<T>(rows, T(0))}),
                  what + " before sinks");
    }
  }
}

// A row whose l is NaN is lost: its m means nothing, since max may drop a NaN or not.
template <class T>
bool same_bits(const Partial<T>& a, const Partial<T>& b) {
  for (std::size_t row = 0; row < a.u.size(); ++row) {
    const bool lost = std::isnan(a.rows.l[row]) && std::isnan(b.rows.l[row]);
    if (!same(a.u[row], b.u[row])) return false;
    if (!lost && (a.rows.m[row] != b.rows.m[row] || a.rows.l[row] != b.rows.l[row])) return false;
  }
  return true;
}

// Keys scattered over 1 to 16 parts, of which some stay empty; merged in any order and any tree. Empty parts, wherever
// they stand, change no bit.
template <class T>
void check_merge_laws(const SoftmaxTarget<T>& target) {
  constexpr std::size_t rows = 4 * row_kinds;
  constexpr std::size_t keys = 40;
  std::mt19937 random(11);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::size_t parts = 1; parts <= 16; ++parts) {
    const Problem<T> problem = random_problem<T>(keys, rows, static_cast<unsigned>(100 + parts));
    std::vector<std::vector<std::size_t>> keys_of_part(parts);
    for (std::size_t key = 0; key < keys; ++key) keys_of_part[below(parts)].push_back(key);
    if (parts > 2) {
      for (const std::size_t key : keys_of_part[1]) keys_of_part[0].push_back(key);
      keys_of_part[1].clear();
    }
    std::vector<Partial<T>> partials;
    for (const auto& part : keys_of_part) {
      partials.push_back(empty_partial(target, rows));
      add_block(target, problem, part, partials.back());
    }
    const std::string what = std::to_string(parts) + " parts";
    const Partial<T> empty = empty_partial(target, rows);

    Partial<T> in_order = empty;
    Partial<T> with_empties = empty;
    for (const Partial<T>& part : partials) {
      in_order = merged(target, in_order, part);
      with_empties = merged(target, with_empties, merged(target, merged(target, empty, part), empty));
    }
    expect_rows(target, problem, no_sinks<T>(rows), in_order, what + " in order");
    EXPECT_TRUE(same_bits(in_order, with_empties)) << what << ": an empty part changed a bit";

    Partial<T> reversed = empty;
    for (auto part = partials.rbegin(); part != partials.rend(); ++part) reversed = merged(target, *part, reversed);
    expect_rows(target, problem, no_sinks<T>(rows), reversed, what + " reversed");

    for (int tree = 0; tree < 3; ++tree) {  // any two that are left become one
      std::vector<Partial<T>> left = partials;
      while (left.size() > 1) {
        std::swap(left[below(left.size())], left.back());
        const Partial<T> last = left.back();
        left.pop_back();
        Partial<T>& other = left[below(left.size())];
        other = merged(target, other, last);
      }
      expect_rows(target, problem, no_sinks<T>(rows), left[0], what + " by a random tree");
    }
  }
}

// A finished part comes back from its normalised output and LSE: sink_only(lse) with o as its unnormalised output.
template <class T>
void check_finished_parts(const SoftmaxTarget<T>& target) {
  constexpr std::size_t rows = 4 * row_kinds;
  Problem<T> problem = random_problem<T>(30, rows, 5);
  for (std::size_t row = 0; row < rows; ++row) {
    // An LSE that large has no bits left for the sum: it cannot be imported to the rule's accuracy.
    if (problem.kinds[row] != RowKind::huge && problem.kinds[row] != RowKind::wide) continue;
    for (Array<T>& scores : problem.scores) scores[row] = T(0.5);
  }
  for (const std::size_t cut : {0u, 1u, 13u, 30u}) {
    Partial<T> first = empty_partial(target, rows);
    Partial<T> second = empty_partial(target, rows);
    std::vector<std::size_t> before;
    std::vector<std::size_t> after;
    for (std::size_t key = 0; key < 30; ++key) (key < cut ? before : after).push_back(key);
    add_block(target, problem, before, first);
    add_block(target, problem, after, second);
    const Array<T> inverse = target.inverse_sum(first.rows);
    Partial<T> imported{target.sink_only(target.to_log2_units(target.lse(first.rows))), first.u};
    for (std::size_t row = 0; row < rows; ++row) imported.u[row] *= inverse[row];
    SoftmaxTarget<T> looser = target;
    looser.set_tolerance(target.tolerance() * 100);  // an LSE of 100 is rounded to 100 times the error of one near 1
    expect_rows(looser, problem, no_sinks<T>(rows), merged(target, imported, second),
                "the first " + std::to_string(cut) + " keys imported");
  }
}

template <class T>
void check_softmax_rows(const SoftmaxTarget<T>& target) {
  SCOPED_TRACE(target.name());
  check_rows(target);
  check_merge_laws(target);
  check_finished_parts(target);
}

}  // namespace tilewise::softmax_rules
