#pragma once

// Visibility straight from its definition, as bit sets over small problems, and the problems that the tests walk.
// Shares nothing with core/ but the types.

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/band.h"

// Sanitizers and unoptimised builds walk fewer problems.
#if defined(TW_SPARSE_TESTS) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TW_SPARSE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TW_SPARSE 1
#endif
#endif
#ifndef TW_SPARSE
#define TW_SPARSE 0
#endif

namespace tilewise::core {

inline constexpr std::int64_t int64_min = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

inline bool operator==(Range a, Range b) { return a.begin == b.begin && a.end == b.end; }
inline std::ostream& operator<<(std::ostream& out, Range r) { return out << "[" << r.begin << ", " << r.end << ")"; }

// A set of at most 40 positions; bit j is position j.
using PositionSet = std::uint64_t;

inline PositionSet positions(std::int64_t begin, std::int64_t end) {
  return begin < end ? ((PositionSet{1} << (end - begin)) - 1) << begin : 0;
}

// One small problem: i + lo <= j <= i + hi, a missing bound being no bound.
struct SmallProblem {
  std::optional<std::int64_t> lo;
  std::optional<std::int64_t> hi;
  std::int64_t q_len = 0;
  std::int64_t k_len = 0;

  [[nodiscard]] bool sees(std::int64_t i, std::int64_t j) const {
    return (!lo || i + *lo <= j) && (!hi || j <= i + *hi);
  }
  [[nodiscard]] Band band() const { return {lo.value_or(int64_min), hi.value_or(int64_max)}; }

  [[nodiscard]] std::vector<PositionSet> keys_by_query() const {
    std::vector<PositionSet> rows(static_cast<std::size_t>(q_len), 0);
    for (std::int64_t i = 0; i < q_len; ++i) {
      for (std::int64_t j = 0; j < k_len; ++j) {
        if (sees(i, j)) rows[static_cast<std::size_t>(i)] |= PositionSet{1} << j;
      }
    }
    return rows;
  }
  [[nodiscard]] std::vector<PositionSet> queries_by_key() const {
    std::vector<PositionSet> columns(static_cast<std::size_t>(k_len), 0);
    for (std::int64_t j = 0; j < k_len; ++j) {
      for (std::int64_t i = 0; i < q_len; ++i) {
        if (sees(i, j)) columns[static_cast<std::size_t>(j)] |= PositionSet{1} << i;
      }
    }
    return columns;
  }
  [[nodiscard]] std::string text() const {
    std::ostringstream out;
    out << "q_len " << q_len << ", k_len " << k_len << ", lo " << (lo ? std::to_string(*lo) : "none") << ", hi "
        << (hi ? std::to_string(*hi) : "none");
    return out.str();
  }
};

// Every problem with lengths up to 20 and bounds in [-q_len - 1, k_len + 1] or missing (outside of these nothing
// changes any more), then a sample of those with lengths up to 40. Stops when `visit` returns false.
template <class Visit>
void for_each_small_problem(const Visit& visit) {
  const std::int64_t longest = TW_SPARSE ? 13 : 20;
  for (std::int64_t q_len = 0; q_len <= longest; ++q_len) {
    for (std::int64_t k_len = 0; k_len <= longest; ++k_len) {
      std::vector<std::optional<std::int64_t>> bounds{std::nullopt};
      for (std::int64_t x = -q_len - 1; x <= k_len + 1; ++x) bounds.emplace_back(x);
      for (const auto& lo : bounds) {
        for (const auto& hi : bounds) {
          if (!visit(SmallProblem{lo, hi, q_len, k_len})) return;
        }
      }
    }
  }
  std::mt19937 random(20);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int sample = 0; sample < (TW_SPARSE ? 4000 : 20000); ++sample) {
    SmallProblem problem;
    problem.q_len = between(0, 40);
    problem.k_len = between(0, 40);
    if (between(0, 7) > 0) problem.lo = between(-problem.q_len - 1, problem.k_len + 1);
    if (between(0, 7) > 0) problem.hi = between(-problem.q_len - 1, problem.k_len + 1);
    if (!visit(problem)) return;
  }
}

}  // namespace tilewise::core
