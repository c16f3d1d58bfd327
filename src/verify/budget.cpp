#include "verify/budget.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "verify/tensor.hpp"

namespace tilewise::verify {
namespace {

constexpr std::size_t elements_for_l2 = 64;  // a relative L2 of fewer elements is mostly luck

std::string in_short(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string place_of(const Measured& m, std::size_t flat) {
  const auto columns = static_cast<std::size_t>(m.columns);
  const RowIndex& row = m.rows[flat / columns];
  return m.name + "[b=" + std::to_string(row.b) + ", h=" + std::to_string(row.h) + ", i=" + std::to_string(row.i) +
         ", column=" + std::to_string(flat % columns) + "]";
}

std::string values_at(const Measured& m, std::size_t flat) {
  char text[96];
  std::snprintf(text, sizeof text, " is %.9g, the oracle says %.9g", m.actual[flat], m.reference[flat]);
  return place_of(m, flat) + text;
}

// NaN, +inf, -inf or finite, after rounding to the tensor's dtype: there a large finite reference becomes infinite.
int kind_of(double value) {
  if (std::isnan(value)) return 3;
  if (std::isinf(value)) return value > 0 ? 2 : 1;
  return 0;
}

double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::float64: return 0x1p-1022;
    case DType::float16: return 0x1p-14;
    default: return 0x1p-126;
  }
}

struct Errors {
  double max = 0;
  double squares = 0;
};

void include(Errors& errors, double error) {
  errors.max = std::max(errors.max, error);
  errors.squares += error * error;
}

// "worst heads: b=0 h=1 2.1e-05, ...": the three largest of a table of maxima.
template <class Key, class Name>
std::string worst_of(const std::map<Key, double>& maxima, const Name& name) {
  std::vector<std::pair<Key, double>> sorted(maxima.begin(), maxima.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t n = 0; n < std::min<std::size_t>(3, sorted.size()); ++n) {
    text += (n == 0 ? "" : ", ") + name(sorted[n].first) + " " + in_short(sorted[n].second);
  }
  return text + " (of " + std::to_string(sorted.size()) + ")";
}

std::string breakdown(const Measured& m) {
  const auto columns = static_cast<std::size_t>(m.columns);
  std::map<std::pair<std::int64_t, std::int64_t>, double> by_head;
  std::map<std::size_t, double> by_column;
  for (std::size_t flat = 0; flat < m.reference.size(); ++flat) {
    if (kind_of(m.reference[flat]) != 0) continue;
    const double error = std::fabs(m.actual[flat] - m.reference[flat]);
    const RowIndex& row = m.rows[flat / columns];
    double& head = by_head[{row.b, row.h}];
    head = std::max(head, error);
    double& column = by_column[flat % columns];
    column = std::max(column, error);
  }
  return "; worst heads: " +
         worst_of(
             by_head,
             [](const auto& key) { return "b=" + std::to_string(key.first) + " h=" + std::to_string(key.second); }) +
         "; worst columns: " + worst_of(by_column, [](std::size_t column) { return std::to_string(column); });
}

}  // namespace

Judgement judge(const Measured& m) {
  Judgement judgement;
  for (std::size_t flat = 0; flat < m.reference.size(); ++flat) {
    if (kind_of(m.actual[flat]) != kind_of(rounded_to(m.dtype, m.reference[flat]))) {
      judgement.failure = values_at(m, flat);
      return judgement;
    }
  }

  const double eps = epsilon_of(m.dtype);
  // eps of less than the smallest normal number is no step of the dtype.
  double largest = m.is_logarithm ? 1 : smallest_normal(m.dtype);
  for (std::size_t flat = 0; flat < m.reference.size(); ++flat) {
    if (kind_of(m.actual[flat]) == 0) largest = std::max(largest, std::fabs(m.reference[flat]));
  }
  Errors ours;
  std::array<Errors, sum_orders.size()> naive;
  double reference_squares = 0;
  std::size_t finite = 0;
  std::size_t worst = 0;
  for (std::size_t flat = 0; flat < m.reference.size(); ++flat) {
    const double reference = m.reference[flat];
    if (kind_of(m.actual[flat]) != 0) continue;
    ++finite;
    const double error = std::fabs(m.actual[flat] - reference) / largest;
    if (error > ours.max) worst = flat;
    include(ours, error);
    for (std::size_t order = 0; order < naive.size(); ++order) {
      // A naive result that overflowed where the oracle did not is no yardstick: it allows nothing.
      const double value = m.naive[order][flat];
      if (kind_of(value) == 0) include(naive[order], std::fabs(value - reference) / largest);
    }
    reference_squares += (reference / largest) * (reference / largest);
  }
  Errors yardstick;
  for (const Errors& one : naive) {
    yardstick.max = std::max(yardstick.max, one.max);
    yardstick.squares = std::max(yardstick.squares, one.squares);
  }
  const auto relative = [&](double squares) {
    return squares == 0 ? 0.0 : std::sqrt(squares / std::max(reference_squares, 1e-300));
  };
  judgement.max_error = ours.max * largest;
  judgement.rel_l2_error = relative(ours.squares);
  const double naive_l2 = relative(yardstick.squares);
  const double roundings = m.dtype == DType::float64 ? 2 : 1;
  const double max_budget = (2 * yardstick.max + roundings * eps) * largest;
  const double l2_budget = 2 * naive_l2 + eps / 4;

  const bool judges_l2 = finite >= elements_for_l2 && !m.is_logarithm;
  judgement.budget_share =
      std::max(judgement.max_error / max_budget, judges_l2 ? judgement.rel_l2_error / l2_budget : 0.0);

  std::string broken;
  if (!(judgement.max_error <= max_budget)) {
    broken += "; max error " + in_short(judgement.max_error) + " is above " + in_short(max_budget) +
              " (naive: " + in_short(yardstick.max * largest) + ")";
  }
  if (judges_l2 && !(judgement.rel_l2_error <= l2_budget)) {
    broken += "; relative L2 error " + in_short(judgement.rel_l2_error) + " is above " + in_short(l2_budget) +
              " (naive: " + in_short(naive_l2) + ")";
  }
  if (!broken.empty()) judgement.failure = values_at(m, worst) + broken + breakdown(m);
  return judgement;
}

double tolerance_of_weights(DType dtype, std::int64_t terms) {
  const double eps = epsilon_of(dtype);
  const double statistics_eps = std::min(eps, epsilon_of(DType::float32));
  return 2 * eps + 4 / std::sqrt(84.0) * std::sqrt(static_cast<double>(terms)) * statistics_eps;
}

}  // namespace tilewise::verify
