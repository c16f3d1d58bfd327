#pragma once

// Attention in float64, straight from the definition: every score of a row is computed, then the row's softmax. It
// shares nothing with core/, kernel/ or the kernels: only the public types. Works on any dtype, stride and option.

#include <array>
#include <cstdint>
#include <vector>

#include "tilewise/attention.hpp"

namespace tilewise::verify {

// One query row of the problem: packed tensors have batch 0 and i counting over the packed rows.
struct RowIndex {
  std::int64_t b;
  std::int64_t h;
  std::int64_t i;
};

struct OracleRow {
  std::vector<double> o;  // [Dv]
  double lse = 0;
};

// The exact result for one row of o; o and lse of `tensors` are not read.
OracleRow oracle_row(const ForwardTensors& tensors, const AttentionOptions& options, RowIndex row);

// The order in which a formula adds: sums of floating-point numbers depend on it, and nobody's formula fixes it.
enum class SumOrder : std::uint8_t { forward, backward, even_then_odd };
inline constexpr std::array<SumOrder, 3> sum_orders{SumOrder::forward, SumOrder::backward, SumOrder::even_then_odd};

// The same formula evaluated naively in float32 (float64 for float64 inputs), o rounded to O's dtype: the yardstick of
// the precision rule (DESIGN section 2).
OracleRow naive_row(const ForwardTensors& tensors, const AttentionOptions& options, RowIndex row,
                    SumOrder order = SumOrder::forward);

// All of the above for one row, its inputs read once.
struct RowStudy {
  OracleRow exact;
  std::array<OracleRow, sum_orders.size()> naive;
};
RowStudy study_row(const ForwardTensors& tensors, const AttentionOptions& options, RowIndex row);

}  // namespace tilewise::verify
