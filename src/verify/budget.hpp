#pragma once

// The precision rule of DESIGN section 2, for one tensor: the error against the oracle is at most
//   twice the naive formula's + eps / 4                in relative L2, from 64 elements on, and
//   twice the naive formula's + eps * max|reference|   in the maximum.
// DESIGN states the rule for float32 and the 16-bit types. float64, there for gradient checks, is allowed 2 eps in the
// maximum: both errors are a handful of roundings of the same format there, and over few keys their ratio is luck.
// "The naive formula's error" is the largest over three orders of its sums: the error of one order on a handful of
// elements is mostly luck, at times exactly 0.
// NaN and infinities are compared first and must stand at exactly the oracle's places, so that a NaN in the reference
// never makes a comparison pass.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tilewise/types.hpp"
#include "verify/oracle.hpp"

namespace tilewise::verify {

struct Measured {
  std::string name;                   // of the tensor, for messages: "o", "lse"
  DType dtype = DType::float32;       // of the tensor that was computed; eps is its
  std::span<const RowIndex> rows{};   // one label per row
  std::int64_t columns = 1;           // elements of a row
  std::span<const double> reference;  // [rows * columns], and so all below
  std::array<std::span<const double>, sum_orders.size()> naive;
  std::span<const double> actual;
  // A log-sum-exp is a logarithm: its absolute error is the relative error of a sum. So eps is taken of 1 at least, and
  // its relative L2 error means nothing.
  bool is_logarithm = false;
};

struct Judgement {
  std::string failure;  // empty when within budget
  double max_error = 0;
  double rel_l2_error = 0;
  double budget_share = 0;  // the larger of both errors over what it may be; above 1: failed
};

Judgement judge(const Measured& measured);

// How far O may be from 1 where V = 1: the quotient of two sums of the same `terms` positive weights, each in its own
// order. Added one after the other, a partial sum is rounded by at most half a step of its binade: with sums that grow
// evenly a variance of (eps / 2)^2 / 12 for the upper half of them, a quarter of it for the quarter below, and so on,
// together terms * eps^2 / 84. Allowed are four deviations, 4 / sqrt(84) * sqrt(terms) eps of the statistics, and 2 eps
// of `dtype` for the division and the last rounding. A key too many or too few moves the quotient by about 1 / terms.
double tolerance_of_weights(DType dtype, std::int64_t terms);

}  // namespace tilewise::verify
