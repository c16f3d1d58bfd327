#pragma once

// How far a row may be from the exact result. The precision rule (DESIGN section 2, verify/budget.hpp) compares with
// one evaluation of the naive formula, which is sometimes right by luck; a fuzzer finds that luck. So a fuzzed row is
// held to a bound from the standard model of rounding instead (Higham, Accuracy and Stability of Numerical Algorithms,
// chapter 3), computed from that row's own magnitudes: wide enough for every order of summation, and far below the
// effect of a key too many, a key too few or a wrong mask.

#include <optional>
#include <string>
#include <vector>

#include "fuzz/problem.hpp"
#include "verify/oracle.hpp"

namespace tilewise::fuzz {

class ErrorBound {
 public:
  explicit ErrorBound(FuzzedProblem& problem);

  // What is wrong with the row's results; empty when nothing is. `lse` is absent when the call asked for none.
  std::string judge(verify::RowIndex row, const std::vector<double>& o, std::optional<double> lse);

 private:
  struct Bounds {
    double weights;         // relative, of the weights and of their sum
    double lse;             // absolute
    std::vector<double> o;  // absolute, [Dv]
  };
  Bounds bounds_of(verify::RowIndex row, const verify::OracleRow& exact);
  bool overflows(verify::RowIndex row);

  FuzzedProblem& problem_;
  FuzzedProblem magnitudes_;  // every term of a score positive: its lse bounds the largest sum of magnitudes
  FuzzedProblem absolute_;    // values positive: its o is the weighted sum of magnitudes
  bool may_overflow_ = false;
};

}  // namespace tilewise::fuzz
