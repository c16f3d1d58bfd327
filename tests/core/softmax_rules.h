#pragma once

// What every target's vocabulary and recurrence must do, function by function, as tables of special and ordinary
// values. All cases of a table share vectors, so a NaN in one lane stands beside ordinary numbers in the next. Whole
// rows and merges are in softmax_rows.h.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/softmax_target.h"

namespace tilewise::softmax_rules {

template <class T>
struct Special {
  static constexpr T inf = std::numeric_limits<T>::infinity();
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  static constexpr T lowest = std::numeric_limits<T>::lowest();
  static constexpr T highest = std::numeric_limits<T>::max();
  static constexpr T tiny = std::numeric_limits<T>::min();
};

// Equal as values (0 == -0), or both NaN.
template <class T>
bool same(T a, T b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// Equal, both NaN, or within `tolerance` of the exact value, relative to it. What the type can only hold as a subnormal
// may be flushed to zero.
template <class T>
bool near(T value, long double exact, long double tolerance) {
  if (std::isnan(exact)) return std::isnan(value);
  if (std::isinf(exact)) return static_cast<long double>(value) == exact;
  if (std::isnan(value) || std::isinf(value)) return false;
  const long double smallest = Special<T>::tiny;
  const auto error = std::fabs(static_cast<long double>(value) - exact);
  return error <= tolerance * std::fabs(exact) || (std::fabs(exact) < smallest && error <= smallest);
}

// --- The vocabulary Ops<V> -------------------------------------------------------------------------------------------

template <class T>
void check_constants(const SoftmaxTarget<T>& target) {
  const auto constants = target.run(SoftmaxStep::constants, {});
  const auto units = target.run(SoftmaxStep::units, {});
  for (std::size_t lane = 0; lane < constants[0].size(); ++lane) {
    EXPECT_EQ(constants[0][lane], T(0));
    EXPECT_EQ(constants[1][lane], T(1));
    EXPECT_EQ(constants[2][lane], Special<T>::lowest);
    EXPECT_EQ(constants[3][lane], Special<T>::highest);
    EXPECT_EQ(units[0][lane], static_cast<T>(1.44269504088896340735992468100189214L));
    EXPECT_EQ(units[1][lane], static_cast<T>(0.69314718055994530941723212145817657L));
  }
}

// Every pair of these, through every function of two arguments.
template <class T>
void check_arithmetic(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  const std::vector<T> values{T(0),   T(-0.0), T(1),   T(-1),     T(0.1),     T(-3.75), T(1e6),
                              S::inf, -S::inf, S::nan, S::lowest, S::highest, S::tiny};
  Array<T> a;
  Array<T> b;
  for (const T x : values) {
    for (const T y : values) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  const Array<T> sum = target.value(SoftmaxStep::add, {a, b});
  const Array<T> difference = target.value(SoftmaxStep::sub, {a, b});
  const Array<T> product = target.value(SoftmaxStep::mul, {a, b});
  const Array<T> quotient = target.value(SoftmaxStep::div, {a, b});
  const Array<T> negative = target.value(SoftmaxStep::neg, {a});
  const Array<T> magnitude = target.value(SoftmaxStep::abs, {a});
  const Array<T> largest = target.max(a, b);
  const Array<T> smallest = target.value(SoftmaxStep::min, {a, b});
  const Array<T> equal = target.value(SoftmaxStep::select_equal, {a, b, Array<T>(a.size(), T(7)), b});
  const Array<T> finite = target.value(SoftmaxStep::select_finite, {a, b, Array<T>(a.size(), T(7))});
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::string text = std::to_string(a[i]) + " and " + std::to_string(b[i]);
    EXPECT_TRUE(same(sum[i], a[i] + b[i])) << "add " << text << " gave " << sum[i];
    EXPECT_TRUE(same(difference[i], a[i] - b[i])) << "sub " << text << " gave " << difference[i];
    EXPECT_TRUE(same(product[i], a[i] * b[i]) || near(product[i], static_cast<long double>(a[i] * b[i]), 0))
        << "mul " << text << " gave " << product[i];
    EXPECT_TRUE(same(quotient[i], a[i] / b[i]) || near(quotient[i], static_cast<long double>(a[i] / b[i]), 0))
        << "div " << text << " gave " << quotient[i];
    EXPECT_TRUE(same(negative[i], -a[i])) << "neg " << text << " gave " << negative[i];
    EXPECT_TRUE(same(magnitude[i], std::fabs(a[i])) && !std::signbit(magnitude[i])) << "abs " << text;
    if (std::isnan(a[i]) || std::isnan(b[i])) {  // either operand
      EXPECT_TRUE(same(largest[i], a[i]) || same(largest[i], b[i])) << "max " << text << " gave " << largest[i];
      EXPECT_TRUE(same(smallest[i], a[i]) || same(smallest[i], b[i])) << "min " << text << " gave " << smallest[i];
    } else {
      EXPECT_EQ(largest[i], a[i] > b[i] ? a[i] : b[i]) << "max " << text;
      EXPECT_EQ(smallest[i], a[i] < b[i] ? a[i] : b[i]) << "min " << text;
    }
    EXPECT_TRUE(same(equal[i], a[i] == b[i] ? T(7) : b[i])) << "select_equal " << text << " gave " << equal[i];
    EXPECT_TRUE(same(finite[i], std::isfinite(a[i]) ? b[i] : T(7)))
        << "select_finite " << text << " gave " << finite[i];
  }
}

// -inf gives exactly 0, 0 exactly 1, NaN stays; results below the smallest normal number may be flushed.
template <class T>
void check_exp2(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  const auto lowest_exponent = static_cast<T>(std::numeric_limits<T>::min_exponent);
  Array<T> x{-S::inf, S::lowest, S::lowest / 2, T(-1e30), T(-1e5), 4 * lowest_exponent, T(0), T(-0.0), S::nan, -S::nan};
  const Array<T> exact{0, 0, 0, 0, 0, 0, 1, 1, S::nan, S::nan};
  const Array<T> special = target.value(SoftmaxStep::exp2, {x});
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(same(special[i], exact[i])) << "exp2(" << x[i] << ") gave " << special[i];
  }
  x.clear();
  for (T v = T(1); v > lowest_exponent - 40; v -= T(0.0137)) x.push_back(v);
  for (T v = lowest_exponent - 40; v <= T(1); v += T(1)) x.push_back(v);
  for (T v = T(1); v > S::tiny; v /= T(3.1)) x.push_back(-v);
  const Array<T> y = target.value(SoftmaxStep::exp2, {x});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double power = std::exp2(static_cast<long double>(x[i]));
    EXPECT_TRUE(y[i] >= 0 && near(y[i], power, target.tolerance())) << "exp2(" << x[i] << ") gave " << y[i];
  }
}

template <class T>
void check_log2(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  Array<T> x{T(0), S::nan, T(1), T(2), T(0.5)};
  for (T v = T(1.01); v < T(1e18); v *= T(1.37)) {
    x.push_back(v);
    x.push_back(1 / v);
  }
  const Array<T> y = target.value(SoftmaxStep::log2, {x});
  EXPECT_EQ(y[0], -S::inf);
  EXPECT_TRUE(std::isnan(y[1])) << y[1];
  for (std::size_t i = 2; i < x.size(); ++i) {
    const long double exact = std::log2(static_cast<long double>(x[i]));
    EXPECT_LE(std::fabs(static_cast<long double>(y[i]) - exact), target.tolerance() * std::fmax(1, std::fabs(exact)))
        << "log2(" << x[i] << ")";
  }
}

// Relative accuracy at 0 too: a capped score far below the cap keeps all its bits.
template <class T>
void check_tanh(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  Array<T> x{S::nan, S::inf, -S::inf, S::highest, S::lowest, T(362), T(-362), T(88), T(40), T(-40), T(0)};
  const Array<T> exact{S::nan, 1, -1, 1, -1, 1, -1, 1, 1, -1, 0};
  for (T v = T(20); v > T(1e-12); v /= T(1.083)) {
    x.push_back(v);
    x.push_back(-v);
  }
  const Array<T> y = target.value(SoftmaxStep::tanh, {x});
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_TRUE(same(y[i], exact[i])) << "tanh(" << x[i] << ") gave " << y[i];
  }
  for (std::size_t i = exact.size(); i < x.size(); ++i) {
    EXPECT_TRUE(near(y[i], std::tanh(static_cast<long double>(x[i])), target.tolerance()))
        << "tanh(" << x[i] << ") gave " << y[i];
    EXPECT_LE(std::fabs(y[i]), T(1)) << "tanh(" << x[i] << ")";
  }
}

// --- The recurrence --------------------------------------------------------------------------------------------------

template <class T>
void check_weight(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  struct Case {
    T score;
    T m;
    T weight;
  };
  const std::vector<Case> cases{{-S::inf, 0, 0},
                                {-S::inf, S::lowest, 0},
                                {-S::inf, S::highest, 0},
                                {-S::inf, S::inf, 0},
                                {0, 0, 1},
                                {T(-3.3), T(-3.3), 1},
                                {T(1e30), T(1e30), 1},
                                {S::lowest, S::lowest, 1},
                                {S::highest, S::highest, 1},
                                {0, S::inf, 0},
                                {S::highest, S::inf, 0},
                                {S::lowest, S::highest, 0},
                                {S::inf, S::inf, S::nan},
                                {S::nan, 0, S::nan},
                                {0, S::nan, S::nan},
                                {S::nan, S::nan, S::nan},
                                {S::nan, S::inf, S::nan},
                                {S::inf, S::nan, S::nan},
                                {-S::inf, S::nan, S::nan},
                                {S::nan, S::lowest, S::nan}};
  Array<T> score;
  Array<T> m;
  for (const Case& c : cases) {
    score.push_back(c.score);
    m.push_back(c.m);
  }
  const Array<T> weight = target.weight(score, m);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(same(weight[i], cases[i].weight)) << "weight(" << score[i] << ", " << m[i] << ") gave " << weight[i];
  }
  EXPECT_TRUE(near(target.weight({T(-2.5)}, {T(1.25)})[0], std::exp2(-3.75L), target.tolerance()));
}

template <class T>
void check_no_keys_and_sinks(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  const RowsArray<T> empty = target.no_keys(5);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(empty.m[i], S::lowest);
    EXPECT_EQ(empty.l[i], T(0));
  }
  const Array<T> logit{-S::inf, T(0), T(-7.5), T(1e30), S::highest, S::lowest, S::inf, S::nan};
  const RowsArray<T> rows = target.sink_only(logit);
  EXPECT_EQ(rows.m[0], S::lowest);
  EXPECT_EQ(rows.l[0], T(0));
  for (std::size_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(rows.m[i], logit[i]);
    EXPECT_EQ(rows.l[i], T(1));
  }
  EXPECT_TRUE(std::isnan(rows.l[6])) << rows.l[6];
  EXPECT_TRUE(std::isnan(rows.l[7])) << rows.l[7];
}

template <class T>
void check_grow(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  struct Case {
    const char* what;
    T m, l, block_max, new_m, new_l, alpha;
  };
  const std::vector<Case> cases{{"masked block", T(2.5), T(3.1), -S::inf, T(2.5), T(3.1), 1},
                                {"masked block, low row", S::lowest, T(3), -S::inf, S::lowest, T(3), 1},
                                {"masked block, empty row", S::lowest, 0, -S::inf, S::lowest, 0, 1},
                                {"masked block, NaN row", T(2), S::nan, -S::inf, T(2), S::nan, 1},
                                {"lower block", T(2.5), T(3.1), T(-4), T(2.5), T(3.1), 1},
                                {"equal block", T(2.5), T(3.1), T(2.5), T(2.5), T(3.1), 1},
                                {"higher block", T(2), T(3), T(5), T(5), T(0.375), T(0.125)},
                                {"far higher block", T(2), T(3), T(5000), T(5000), 0, 0},
                                {"from one end to the other", S::lowest, T(3), S::highest, S::highest, 0, 0},
                                {"infinite block", T(2), T(3), S::inf, S::inf, 0, 0},
                                {"empty row", S::lowest, 0, T(-80), T(-80), 0, 0},
                                {"empty row, negative block", S::lowest, 0, T(-1e30), T(-1e30), 0, 0},
                                {"empty row, high block", S::lowest, 0, S::highest, S::highest, 0, 0},
                                {"empty row, lowest block", S::lowest, 0, S::lowest, S::lowest, 0, 1},
                                {"NaN row", T(2), S::nan, T(5), T(5), S::nan, T(0.125)},
                                {"NaN row, far higher block", T(2), S::nan, T(5000), T(5000), S::nan, 0}};
  RowsArray<T> rows;
  Array<T> block_max;
  for (const Case& c : cases) {
    rows.m.push_back(c.m);
    rows.l.push_back(c.l);
    block_max.push_back(c.block_max);
  }
  const GrownArray<T> grown = target.grow(rows, block_max);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    EXPECT_EQ(grown.rows.m[i], c.new_m) << c.what;
    // Powers that are not 0 or 1 carry the error of exp2.
    const long double tolerance = c.alpha == 0 || c.alpha == 1 ? 0 : target.tolerance();
    EXPECT_TRUE(near(grown.alpha[i], static_cast<long double>(c.alpha), tolerance)) << c.what << grown.alpha[i];
    EXPECT_TRUE(near(grown.rows.l[i], static_cast<long double>(c.new_l), tolerance)) << c.what << grown.rows.l[i];
  }
}

// Whether Ops::max keeps the NaN or drops it, l holds it once the block's weights are added, and keeps it.
template <class T>
void check_nan_travels(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  const std::vector<T> bad{S::nan, -S::nan, S::inf};
  RowsArray<T> rows;
  Array<T> score;
  for (const T b : bad) {
    for (const auto& [m, l] : {std::pair{S::lowest, T(0)}, std::pair{T(2), T(3)}, std::pair{S::highest, T(1)}}) {
      rows.m.push_back(m);
      rows.l.push_back(l);
      score.push_back(b);
    }
  }
  const Array<T> beside(score.size(), T(1.5));  // an ordinary score of the same block, before and after the bad one
  for (const bool first : {false, true}) {
    const Array<T> block_max = first ? target.max(beside, score) : target.max(score, beside);
    RowsArray<T> next = target.grow(rows, block_max).rows;
    next = target.add(next, target.weight(score, next.m));
    next = target.add(next, target.weight(beside, next.m));
    const auto all_nan = [&](const Array<T>& x, const char* what) {
      for (std::size_t i = 0; i < x.size(); ++i)
        EXPECT_TRUE(std::isnan(x[i])) << what << " case " << i << " is " << x[i];
    };
    all_nan(next.l, "l after the block");
    for (const T later : {-S::inf, T(-4), T(4), S::highest}) {
      next = target.grow(next, Array<T>(score.size(), later)).rows;
      next = target.add(next, target.weight(Array<T>(score.size(), later), next.m));
      all_nan(next.l, "l after a later block");
    }
    all_nan(target.inverse_sum(next), "inverse_sum");
    all_nan(target.lse(next), "lse");
  }
}

template <class T>
void check_merge_table(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  struct Case {
    const char* what;
    T m_a, l_a, m_b, l_b, m, l, wa, wb;
  };
  const std::vector<Case> cases{
      {"two empties", S::lowest, 0, S::lowest, 0, S::lowest, 0, 1, 1},
      {"empty on the right", T(-2.3), T(1.7), S::lowest, 0, T(-2.3), T(1.7), 1, 0},
      {"empty on the left", S::lowest, 0, T(-2.3), T(1.7), T(-2.3), T(1.7), 0, 1},
      {"empty beside the lowest score", S::lowest, T(2), S::lowest, 0, S::lowest, T(2), 1, 1},
      {"empty beside the highest score", S::highest, T(2), S::lowest, 0, S::highest, T(2), 1, 0},
      {"equal maxima", T(4), T(2), T(4), T(3), T(4), T(5), 1, 1},
      {"left is higher", T(4), T(2), T(1), T(8), T(4), T(3), 1, T(0.125)},
      {"right is higher", T(1), T(8), T(4), T(2), T(4), T(3), T(0.125), 1},
      {"right is far below", T(4), T(2), T(-4000), T(8), T(4), T(2), 1, 0},
      {"NaN on the left", T(4), S::nan, T(1), T(8), T(4), S::nan, 1, T(0.125)},
      {"NaN on the right, far below", T(4), T(2), T(-4000), S::nan, T(4), S::nan, 1, 0},
      {"NaN beside an empty part", S::lowest, 0, T(4), S::nan, T(4), S::nan, 0, 1},
      {"NaN in an empty part", S::lowest, S::nan, T(4), T(1), T(4), S::nan, 0, 1}};
  RowsArray<T> a;
  RowsArray<T> b;
  for (const Case& c : cases) {
    a.m.push_back(c.m_a);
    a.l.push_back(c.l_a);
    b.m.push_back(c.m_b);
    b.l.push_back(c.l_b);
  }
  const MergedArray<T> merged = target.merge(a, b);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    const bool exact = (c.wa == 0 || c.wa == 1) && (c.wb == 0 || c.wb == 1);
    const long double tolerance = exact ? 0 : target.tolerance();
    EXPECT_EQ(merged.rows.m[i], c.m) << c.what;
    EXPECT_TRUE(near(merged.rows.l[i], static_cast<long double>(c.l), tolerance)) << c.what << merged.rows.l[i];
    EXPECT_TRUE(near(merged.wa[i], static_cast<long double>(c.wa), tolerance)) << c.what << merged.wa[i];
    EXPECT_TRUE(near(merged.wb[i], static_cast<long double>(c.wb), tolerance)) << c.what << merged.wb[i];
  }
  const RowsArray<T> infinite = target.sink_only({S::inf});
  EXPECT_TRUE(std::isnan(target.merge(infinite, {{T(4)}, {T(2)}}).rows.l[0]));
  EXPECT_TRUE(std::isnan(target.merge({{T(4)}, {T(2)}}, infinite).rows.l[0]));
}

template <class T>
void check_results(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  const RowsArray<T> rows{{S::lowest, T(3), T(3), T(-100), T(2), S::nan, T(1e4), S::highest, S::lowest},
                          {0, T(1), T(3), T(1e6), S::nan, S::nan, T(7), T(1), T(1)}};
  const Array<T> inverse = target.inverse_sum(rows);
  const Array<T> lse = target.lse(rows);
  EXPECT_EQ(inverse[0], T(0));
  EXPECT_EQ(lse[0], -S::inf);
  for (std::size_t i = 1; i < rows.m.size(); ++i) {
    const long double m = rows.m[i];
    const long double l = rows.l[i];
    EXPECT_TRUE(near(inverse[i], 1 / l, target.tolerance())) << "1 / " << rows.l[i] << " gave " << inverse[i];
    EXPECT_TRUE(near(lse[i], (m + std::log2(l)) * 0.69314718055994530941723212145817657L, 2 * target.tolerance()))
        << "lse(" << rows.m[i] << ", " << rows.l[i] << ") gave " << lse[i];
  }
  const RowsArray<T> sum = target.add({{T(2), T(2), S::lowest}, {T(1.5), S::nan, 0}}, {T(0.25), T(1), 0});
  EXPECT_EQ(sum.m, (Array<T>{T(2), T(2), S::lowest}));
  EXPECT_EQ(sum.l[0], T(1.75));
  EXPECT_TRUE(std::isnan(sum.l[1]));
  EXPECT_EQ(sum.l[2], T(0));
}

// --- Scores ----------------------------------------------------------------------------------------------------------

// A finite score stays finite, so that it never masks.
template <class T>
void check_to_log2_units(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  const Array<T> x{
      S::inf, -S::inf, S::nan,   -S::nan, S::highest,     S::lowest,    S::highest / T(1.2), S::lowest / T(1.2),
      0,      1,       T(-2.75), T(1e30), S::highest / 2, S::lowest / 2};
  const Array<T> exact{S::inf, -S::inf, S::nan, S::nan, S::highest, S::lowest, S::highest, S::lowest};
  const Array<T> y = target.to_log2_units(x);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_TRUE(same(y[i], exact[i])) << "to_log2_units(" << x[i] << ") gave " << y[i];
  }
  for (std::size_t i = exact.size(); i < x.size(); ++i) {
    const long double scaled = static_cast<long double>(x[i]) * 1.44269504088896340735992468100189214L;
    EXPECT_TRUE(near(y[i], scaled, std::numeric_limits<T>::epsilon())) << x[i] << " gave " << y[i];
  }
}

template <class T>
void check_softcapped(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  struct Case {
    T s;
    T cap;
    T capped;
  };
  const std::vector<Case> saturated{
      {T(18102), T(50), T(50)},       {T(-18102), T(50), T(-50)}, {T(1e38), T(50), T(50)}, {T(-1e38), T(50), T(-50)},
      {S::highest, T(50), T(50)},     {S::lowest, T(50), T(-50)}, {S::inf, T(50), T(50)},  {-S::inf, T(50), T(-50)},
      {S::highest, T(0.01), T(0.01)}, {S::nan, T(50), S::nan},    {0, T(50), 0},           {T(5000), T(30), T(30)}};
  const std::vector<T> ordinary{T(1e-6), T(-0.3), T(2), T(-17), T(49), T(120), T(-250)};
  Array<T> s;
  Array<T> cap;
  for (const Case& c : saturated) {
    s.push_back(c.s);
    cap.push_back(c.cap);
  }
  for (const T x : ordinary) {
    s.push_back(x);
    cap.push_back(T(50));
  }
  const Array<T> y = target.value(SoftmaxStep::softcapped, {s, cap});
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (i < saturated.size()) {
      EXPECT_TRUE(same(y[i], saturated[i].capped)) << "softcapped(" << s[i] << ", " << cap[i] << ") gave " << y[i];
    } else {
      const long double exact = cap[i] * std::tanh(static_cast<long double>(s[i]) / cap[i]);
      EXPECT_TRUE(near(y[i], exact, 2 * target.tolerance())) << "softcapped(" << s[i] << ") gave " << y[i];
    }
  }
}

template <class T>
void check_alibi(const SoftmaxTarget<T>& target) {
  using S = Special<T>;
  const Array<T> slope{T(0.5), T(0.5), T(0.5), T(-0.25), 0, S::nan, S::inf};
  const Array<T> distance{T(6), T(-6), 0, T(4), T(1e9), T(1), T(2)};
  const Array<T> exact{T(-3), T(-3), 0, T(1), 0, S::nan, -S::inf};
  const Array<T> y = target.value(SoftmaxStep::alibi, {slope, distance});
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_TRUE(same(y[i], exact[i])) << "alibi(" << slope[i] << ", " << distance[i] << ") gave " << y[i];
  }
}

// The whole table, for targets that want one test.
template <class T>
void check_softmax_rules(const SoftmaxTarget<T>& target) {
  SCOPED_TRACE(target.name());
  check_constants(target);
  check_arithmetic(target);
  check_exp2(target);
  check_log2(target);
  check_tanh(target);
  check_weight(target);
  check_no_keys_and_sinks(target);
  check_grow(target);
  check_nan_travels(target);
  check_merge_table(target);
  check_results(target);
  check_to_log2_units(target);
  check_softcapped(target);
  check_alibi(target);
}

}  // namespace tilewise::softmax_rules
