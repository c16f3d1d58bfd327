#include "fuzz/error_bound.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <limits>

#include "verify/tensor.hpp"

namespace tilewise::fuzz {
namespace {

using verify::OracleRow;
using verify::RowIndex;
using verify::Tensor;

// Scores of such a bias stand for "masked": against an ordinary score they weigh nothing, whatever their rounding.
constexpr double as_good_as_masked = -1e6;

double finite_magnitude(double x) { return std::isfinite(x) ? std::abs(x) : 0; }

template <class Function>
void transform(Tensor& tensor, const Function& function) {
  for (std::int64_t flat = 0; flat < tensor.element_count(); ++flat) tensor.set(flat, function(tensor.get(flat)));
}

double largest_in(const Tensor& tensor) {
  double largest = 0;
  for (std::int64_t flat = 0; flat < tensor.element_count(); ++flat) {
    largest = std::max(largest, finite_magnitude(tensor.get(flat)));
  }
  return largest;
}

// NaN, the infinities, or finite.
enum class Kind : std::uint8_t { finite, nan, plus_infinity, minus_infinity };

Kind kind_of(double x) {
  if (std::isnan(x)) return Kind::nan;
  if (std::isinf(x)) return x > 0 ? Kind::plus_infinity : Kind::minus_infinity;
  return Kind::finite;
}

struct Compared {
  std::string name;
  DType dtype;
  double actual;
  double exact;
  double naive;
  double bound;
};

std::string difference(const Compared& c) {
  const Kind actual = kind_of(c.actual);
  bool same_kind = actual == kind_of(verify::rounded_to(c.dtype, c.exact)) || actual == kind_of(c.naive);
  // Near the end of the range rounding decides between the largest number and infinity.
  for (const double edge : {c.exact - c.bound, c.exact + c.bound}) {
    same_kind = same_kind || (!std::isnan(edge) && actual == kind_of(verify::rounded_to(c.dtype, edge)));
  }
  const bool near =
      actual != Kind::finite || kind_of(c.exact) != Kind::finite || !(std::abs(c.actual - c.exact) > c.bound);
  if (same_kind && near) return {};
  char text[160];
  std::snprintf(text, sizeof text, " is %.9g, exact %.17g, naive %.9g, allowed error %.3g", c.actual, c.exact, c.naive,
                c.bound);
  return c.name + text;
}

}  // namespace

ErrorBound::ErrorBound(FuzzedProblem& problem) : problem_(problem), magnitudes_(problem), absolute_(problem) {
  verify::Call& m = magnitudes_.call;
  for (Tensor* tensor : {&m.q, &m.k, &m.v}) transform(*tensor, finite_magnitude);
  transform(m.bias, [](double bias) {
    if (bias == -std::numeric_limits<double>::infinity()) return bias;
    return bias < as_good_as_masked ? 0 : finite_magnitude(bias);
  });
  transform(m.alibi_slopes, [](double slope) { return -finite_magnitude(slope); });
  transform(m.sinks, [](double sink) { return sink < as_good_as_masked ? sink : finite_magnitude(sink); });
  m.settings.softcap.reset();
  if (m.settings.scale) m.settings.scale = std::abs(*m.settings.scale);

  if (absolute_.values_are_keys) {
    absolute_.call.v = absolute_.call.k;
    absolute_.values_are_keys = false;
  }
  transform(absolute_.call.v, finite_magnitude);

  const double limit = problem.call.q.dtype() == DType::float64 ? DBL_MAX : static_cast<double>(FLT_MAX);
  const auto dim = static_cast<double>(std::max<std::int64_t>(1, m.q.shape()[3]));
  const double scale = std::max(1.0, std::abs(problem.call.settings.scale.value_or(1)));
  const double reach = dim * std::max(1.0, largest_in(m.q)) * std::max(1.0, largest_in(m.k)) * scale;
  may_overflow_ = !(reach < limit / 1e3) || !(std::max(largest_in(m.v), largest_in(m.k)) < limit / 1e5);
}

// Whether an intermediate of the row may leave the range of the type that computes, though its exact result does not.
// Only what the row sees counts.
bool ErrorBound::overflows(RowIndex row) {
  if (!may_overflow_) return false;
  const double limit = problem_.call.q.dtype() == DType::float64 ? DBL_MAX : static_cast<double>(FLT_MAX);
  AttentionOptions options = magnitudes_.call.options();
  options.scale = std::max(1.0, options.scale.value_or(1));
  const double scores = verify::oracle_row(magnitudes_.tensors(), options, row).lse;
  // With equal weights the output is the mean of the values, so that n of it bounds their sum.
  options.scale = 0;
  options.bias = problem_.call.options().bias;
  options.alibi_slopes = {};
  options.sinks = {};
  options.dropout.reset();
  const OracleRow mean = verify::oracle_row(magnitudes_.tensors(), options, row);
  double values = 0;
  for (const double value : mean.o) values = std::max(values, value);
  const auto keys = static_cast<double>(std::max<std::int64_t>(1, problem_.kv_rows));
  return !(scores < limit / 1e3) || !(values * keys < limit / 1e5);
}

ErrorBound::Bounds ErrorBound::bounds_of(RowIndex row, const OracleRow& exact) {
  const DType dtype = problem_.call.q.dtype();
  const DType compute = verify::statistics_dtype(dtype);
  const double eps = verify::epsilon_of(compute);
  const double smallest = compute == DType::float64 ? DBL_MIN : static_cast<double>(FLT_MIN);
  const auto keys = static_cast<double>(problem_.kv_rows);
  const auto dim = static_cast<double>(problem_.call.q.shape()[3]);

  // A score is a sum of D + 3 terms, each with a few roundings; it moves a weight by the exponential of its error.
  const double largest_score =
      std::max(0.0, verify::oracle_row(magnitudes_.tensors(), magnitudes_.call.options(), row).lse);
  const double score_error =
      exact.lse < as_good_as_masked ? std::numeric_limits<double>::infinity() : eps * ((dim + 16) * largest_score + 16);
  Bounds bounds;
  bounds.weights = std::expm1(2 * score_error) + 2 * (keys + 16) * eps;
  bounds.lse = bounds.weights + 4 * eps * std::abs(exact.lse);
  const OracleRow sums = verify::oracle_row(absolute_.tensors(), absolute_.call.options(), row);
  const double kept = problem_.call.settings.dropout ? 1 - problem_.call.settings.dropout->p : 1;
  const double underflow = kept > 0 ? 2 * keys * smallest * largest_in(absolute_.call.v) / kept : 0;
  const double least = dtype == DType::float16 ? 0x1p-24 : smallest;  // half a step of the subnormal numbers
  for (std::size_t d = 0; d < sums.o.size(); ++d) {
    bounds.o.push_back(bounds.weights * sums.o[d] + verify::epsilon_of(dtype) * std::abs(exact.o[d]) + underflow +
                       least);
  }
  return bounds;
}

std::string ErrorBound::judge(RowIndex row, const std::vector<double>& o, std::optional<double> lse) {
  if (overflows(row)) return {};
  const ForwardTensors tensors = problem_.tensors();
  const AttentionOptions options = problem_.call.options();
  const OracleRow exact = verify::oracle_row(tensors, options, row);
  const OracleRow naive = verify::naive_row(tensors, options, row);
  if (exact.lse == -std::numeric_limits<double>::infinity()) {
    const bool zero = std::all_of(o.begin(), o.end(), [](double value) { return value == 0; });
    if (!zero) return "a row that sees no key is not zero";
  }
  const Bounds bounds = bounds_of(row, exact);
  for (std::size_t d = 0; d < o.size(); ++d) {
    const std::string what = difference(
        {"o[" + std::to_string(d) + "]", problem_.call.o.dtype(), o[d], exact.o[d], naive.o[d], bounds.o[d]});
    if (!what.empty()) return what;
  }
  if (!lse) return {};
  return difference({"lse", problem_.call.lse.dtype(), *lse, exact.lse, naive.lse, bounds.lse});
}

}  // namespace tilewise::fuzz
