#pragma once

// A target under test: its functions on arrays of lanes, behind calls that read like the functions themselves.

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/softmax_step.h"

namespace tilewise::softmax_rules {

template <class T>
using Array = std::vector<T>;

template <class T>
struct RowsArray {
  Array<T> m;
  Array<T> l;
};
template <class T>
struct GrownArray {
  RowsArray<T> rows;
  Array<T> alpha;
};
template <class T>
struct MergedArray {
  RowsArray<T> rows;
  Array<T> wa;
  Array<T> wb;
};

template <class T>
class SoftmaxTarget {
 public:
  // Runs a step on n elements of each array, n a multiple of `lanes`.
  using Run = std::function<void(SoftmaxStep step, std::size_t n, const T* const* in, T* const* out)>;

  // `tolerance`: the largest relative error of exp2, log2 and tanh that the target claims; by default 4 units in the
  // last place.
  SoftmaxTarget(std::string name, std::size_t lanes, Run run, T tolerance = 4 * std::numeric_limits<T>::epsilon())
      : name_(std::move(name)), lanes_(lanes), run_(std::move(run)), tolerance_(tolerance) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] T tolerance() const { return tolerance_; }
  void set_tolerance(T tolerance) { tolerance_ = tolerance; }

  // The arrays may be shorter than a vector; missing lanes repeat the last element.
  [[nodiscard]] std::array<Array<T>, softmax_step_arrays> run(SoftmaxStep step, std::vector<Array<T>> in) const {
    const std::size_t n = in.empty() ? lanes_ : in[0].size();
    const std::size_t padded = (n + lanes_ - 1) / lanes_ * lanes_;
    for (Array<T>& x : in) x.resize(padded, x.back());
    in.resize(softmax_step_arrays, Array<T>(padded, T(0)));
    std::array<Array<T>, softmax_step_arrays> out;
    std::array<const T*, softmax_step_arrays> in_data{};
    std::array<T*, softmax_step_arrays> out_data{};
    for (std::size_t k = 0; k < softmax_step_arrays; ++k) {
      out[k].assign(padded, T(-12345));
      in_data[k] = in[k].data();
      out_data[k] = out[k].data();
    }
    run_(step, padded, in_data.data(), out_data.data());
    for (Array<T>& x : out) x.resize(n);
    return out;
  }
  [[nodiscard]] Array<T> value(SoftmaxStep step, std::vector<Array<T>> in) const { return run(step, std::move(in))[0]; }

  [[nodiscard]] Array<T> max(const Array<T>& a, const Array<T>& b) const { return value(SoftmaxStep::max, {a, b}); }
  [[nodiscard]] Array<T> weight(const Array<T>& score, const Array<T>& m) const {
    return value(SoftmaxStep::weight, {score, m});
  }
  [[nodiscard]] RowsArray<T> no_keys(std::size_t n) const {
    const auto out = run(SoftmaxStep::no_keys, {Array<T>(n, T(0))});
    return {out[0], out[1]};
  }
  [[nodiscard]] RowsArray<T> sink_only(const Array<T>& logit) const {
    const auto out = run(SoftmaxStep::sink_only, {logit});
    return {out[0], out[1]};
  }
  [[nodiscard]] GrownArray<T> grow(const RowsArray<T>& rows, const Array<T>& block_max) const {
    const auto out = run(SoftmaxStep::grow, {rows.m, rows.l, block_max});
    return {{out[0], out[1]}, out[2]};
  }
  [[nodiscard]] RowsArray<T> add(const RowsArray<T>& rows, const Array<T>& sum) const {
    const auto out = run(SoftmaxStep::add_sum, {rows.m, rows.l, sum});
    return {out[0], out[1]};
  }
  [[nodiscard]] MergedArray<T> merge(const RowsArray<T>& a, const RowsArray<T>& b) const {
    const auto out = run(SoftmaxStep::merge, {a.m, a.l, b.m, b.l});
    return {{out[0], out[1]}, out[2], out[3]};
  }
  [[nodiscard]] Array<T> inverse_sum(const RowsArray<T>& rows) const {
    return value(SoftmaxStep::inverse_sum, {rows.m, rows.l});
  }
  [[nodiscard]] Array<T> lse(const RowsArray<T>& rows) const { return value(SoftmaxStep::lse, {rows.m, rows.l}); }
  [[nodiscard]] Array<T> to_log2_units(const Array<T>& x) const { return value(SoftmaxStep::to_log2_units, {x}); }

 private:
  std::string name_;
  std::size_t lanes_;
  Run run_;
  T tolerance_;
};

}  // namespace tilewise::softmax_rules
