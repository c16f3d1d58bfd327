#pragma once

// One run of one case: makes its inputs, runs the kernel under test on them, and holds the results to the oracle.
// Every run has its outputs and workspace filled with poison first, and checks afterwards that every element of the
// outputs was written and nothing between or around them.

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "verify/call.hpp"
#include "verify/oracle.hpp"
#include "verify/random.hpp"

namespace tilewise::verify {

// What is under test: one kernel behind the API, or a fake in the suite's own tests.
struct Subject {
  std::string name;
  Device device{};
  // The reason why it does not take the call; empty when it does. Throws when it cannot be forced.
  std::function<std::string(const ForwardTensors&, const AttentionOptions&)> refusal;
  std::function<std::size_t(const ForwardTensors&, const AttentionOptions&, const ExecutionOptions&)> workspace;
  std::function<void(const ForwardTensors&, const AttentionOptions&, const ExecutionOptions&)> forward;
};

class CaseFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CaseSkipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The oracle's and the naive formula's results for some rows of one call.
struct Reference {
  std::vector<RowIndex> rows;
  std::vector<double> o;    // [rows, Dv]
  std::vector<double> lse;  // [rows]
  std::array<std::vector<double>, sum_orders.size()> naive_o, naive_lse;
};

// References of one case and dtype in the order in which the case asks for them: the next kernel asks for the same.
using References = std::vector<Reference>;

// Row-major copies of a run's results.
struct Outputs {
  Tensor o;
  Tensor lse;
};

inline constexpr std::size_t all_rows = std::numeric_limits<std::size_t>::max();

class Trial {
 public:
  Trial(const Subject& subject, DType dtype, std::uint64_t seed, References& references)
      : subject_(subject), dtype_(dtype), random_(seed), references_(references) {}

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] double eps() const { return epsilon_of(dtype_); }
  [[nodiscard]] double largest() const;  // largest finite value of the dtype
  Random& random() { return random_; }

  // A call with q, k, v ~ N(0, 1) and its outputs. Without a layout, a coin decides between exact and contiguous.
  Call call(const Shape& shape, std::optional<Layout> layout = std::nullopt);
  Tensor normal(const std::vector<std::int64_t>& shape, double deviation = 1, double mean = 0);
  // A float32 tensor (biases, slopes, sinks).
  Tensor normal_f32(const std::vector<std::int64_t>& shape, double deviation = 1, double mean = 0);
  // A mask in which a cell attends with probability `density`; true cells hold various non-zero bytes.
  Tensor random_mask(const std::vector<std::int64_t>& shape, double density, Layout layout = Layout::contiguous);

  // Runs the call. Throws CaseSkipped when the subject refuses it.
  Outputs run(Call& call, int threads = 1);
  // Runs the call and holds up to `max_rows` of its rows to the oracle: first and last, and a sample between.
  Outputs check(Call& call, std::size_t max_rows = all_rows);
  // As check, but errors are judged together with those of later calls, by judge_collected(): a budget measured on a
  // handful of elements is mostly luck.
  Outputs collect(Call& call, std::size_t max_rows = all_rows);
  void judge_collected();

  // The call must be refused as an invalid argument whose message names `argument`, outputs untouched.
  void expect_invalid(Call& call, const std::string& argument);
  void expect_same_bits(const Outputs& actual, const Outputs& expected, const std::string& what);
  void expect_same_bits(const Tensor& actual, const Tensor& expected, const std::string& what);
  void expect_near(const Tensor& actual, const std::function<double(std::int64_t flat)>& expected, double tolerance,
                   const std::string& what);
  void expect(bool condition, const std::string& what) const;
  [[noreturn]] void fail(const std::string& what) const;

  [[nodiscard]] double max_error() const { return max_error_; }
  [[nodiscard]] double rel_l2_error() const { return rel_l2_error_; }
  [[nodiscard]] double budget_share() const { return budget_share_; }

 private:
  const Reference& next_reference(Call& call, std::size_t max_rows);

  const Subject& subject_;
  DType dtype_;
  Random random_;
  References& references_;
  std::size_t next_reference_ = 0;
  Reference collected_;
  std::vector<double> collected_o_, collected_lse_;
  std::int64_t collected_columns_ = 0;
  double max_error_ = 0;
  double rel_l2_error_ = 0;
  double budget_share_ = 0;
};

}  // namespace tilewise::verify
