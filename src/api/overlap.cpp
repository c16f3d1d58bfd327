#include "api/overlap.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

namespace tilewise::api {
namespace {

using std::int64_t;

// x in [low, high] counted `step` bytes each; step > 0.
struct Variable {
  int64_t step;
  int64_t low;
  int64_t high;
};

constexpr int max_variables = 2 * max_rank;
constexpr int max_nodes = 100000;

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }
int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// Is there a choice of all variables with sum(x * step) in [low, high]? Steps are taken from the largest down; what the
// smaller ones can reach prunes the search to a few values a level for any layout of nested dimensions.
class BoundedSum {
 public:
  void add(Variable variable) {
    for (int n = 0; n < count_; ++n) {
      if (variables_[index(n)].step == variable.step) {
        variables_[index(n)].low += variable.low;
        variables_[index(n)].high += variable.high;
        return;
      }
    }
    variables_[index(count_++)] = variable;
  }

  // With `nonzero`, the all-zero choice does not count.
  bool reaches(int64_t low, int64_t high, bool nonzero) {
    std::sort(variables_.begin(), variables_.begin() + count_,
              [](const Variable& a, const Variable& b) { return a.step > b.step; });
    for (int n = count_; n-- > 0;) {
      rest_low_[index(n)] = rest_low_[index(n + 1)] + variables_[index(n)].low * variables_[index(n)].step;
      rest_high_[index(n)] = rest_high_[index(n + 1)] + variables_[index(n)].high * variables_[index(n)].step;
    }
    nodes_ = 0;
    return search(0, low, high, nonzero);
  }

 private:
  static std::size_t index(int n) { return static_cast<std::size_t>(n); }

  bool search(int n, int64_t low, int64_t high, bool nonzero) {
    if (++nodes_ > max_nodes) return true;
    if (n == count_) return low <= 0 && 0 <= high && !nonzero;
    const Variable v = variables_[index(n)];
    // x * step must leave a remainder that the later variables can reach.
    const int64_t first = std::max(v.low, ceil_div(low - rest_high_[index(n + 1)], v.step));
    const int64_t last = std::min(v.high, floor_div(high - rest_low_[index(n + 1)], v.step));
    for (int64_t x = first; x <= last; ++x) {
      if (search(n + 1, low - x * v.step, high - x * v.step, nonzero && x == 0)) return true;
    }
    return false;
  }

  std::array<Variable, max_variables> variables_{};
  std::array<int64_t, max_variables + 1> rest_low_{};  // least and greatest sum of the variables from n on
  std::array<int64_t, max_variables + 1> rest_high_{};
  int count_ = 0;
  int nodes_ = 0;
};

struct Extent {
  std::uintptr_t low = 0;   // address of the lowest element
  std::uintptr_t high = 0;  // one past the last byte of the highest
};

bool empty(const ConstTensorView& t) {
  if (!t.present()) return true;
  for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
    if (t.shape[d] == 0) return true;
  }
  return false;
}

Extent extent_of(const ConstTensorView& t) {
  int64_t low = 0;
  int64_t high = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
    const int64_t reach = (t.shape[d] - 1) * t.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  const auto size = static_cast<int64_t>(size_of(t.dtype));
  const auto base = reinterpret_cast<std::uintptr_t>(t.data);
  return {base + static_cast<std::uintptr_t>(low * size), base + static_cast<std::uintptr_t>((high + 1) * size)};
}

}  // namespace

bool share_elements(const ConstTensorView& a, const ConstTensorView& b) {
  if (empty(a) || empty(b)) return false;
  const Extent ea = extent_of(a);
  const Extent eb = extent_of(b);
  if (ea.high <= eb.low || eb.high <= ea.low) return false;
  // Measure both from their lowest elements, where all steps are positive: a.low + sum(a) - b.low - sum(b) = distance.
  BoundedSum sum;
  const auto add = [&sum](const ConstTensorView& t, bool negated) {
    const auto size = static_cast<int64_t>(size_of(t.dtype));
    for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
      // The stride along a dimension of size 1 may be anything; in bytes it may overflow.
      if (t.strides[d] == 0 || t.shape[d] == 1) continue;
      const int64_t step = std::abs(t.strides[d]) * size;
      sum.add(negated ? Variable{step, 1 - t.shape[d], 0} : Variable{step, 0, t.shape[d] - 1});
    }
  };
  add(a, false);
  add(b, true);
  const auto shift = static_cast<int64_t>(eb.low - ea.low);
  const auto size_a = static_cast<int64_t>(size_of(a.dtype));
  const auto size_b = static_cast<int64_t>(size_of(b.dtype));
  return sum.reaches(shift - size_a + 1, shift + size_b - 1, false);
}

bool overlaps_itself(const ConstTensorView& t) {
  if (empty(t)) return false;
  BoundedSum sum;
  const auto size = static_cast<int64_t>(size_of(t.dtype));
  for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
    if (t.shape[d] == 1) continue;
    if (t.strides[d] == 0) return true;
    // Two dimensions of one stride meet: (1, 0) and (0, 1) are the same element.
    for (std::size_t e = 0; e < d; ++e) {
      if (t.shape[e] > 1 && std::abs(t.strides[e]) == std::abs(t.strides[d])) return true;
    }
    sum.add({std::abs(t.strides[d]) * size, 1 - t.shape[d], t.shape[d] - 1});
  }
  return sum.reaches(1 - size, size - 1, true);
}

}  // namespace tilewise::api
