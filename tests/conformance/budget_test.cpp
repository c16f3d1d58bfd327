// The judge itself: what it lets pass and what it does not.
#include "verify/budget.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "verify/tensor.hpp"

namespace tilewise::verify {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan_value = std::numeric_limits<double>::quiet_NaN();

// 8 rows of 16 columns around 1, with a naive error of 1e-6 in every element of one order.
struct Sheet {
  std::vector<RowIndex> rows;
  std::vector<double> reference, naive, actual;

  Sheet() {
    for (std::int64_t i = 0; i < 8; ++i) rows.push_back({0, i / 4, i % 4});
    for (int n = 0; n < 128; ++n) {
      reference.push_back(1 + 0.001 * n);
      naive.push_back(reference.back() + 1e-6);
      actual.push_back(reference.back());
    }
  }
  [[nodiscard]] Judgement judged(DType dtype = DType::float32, bool logarithm = false) const {
    return judge({.name = "o",
                  .dtype = dtype,
                  .rows = rows,
                  .columns = 16,
                  .reference = reference,
                  .naive = {reference, naive, reference},
                  .actual = actual,
                  .is_logarithm = logarithm});
  }
};

TEST(Budget, TwiceTheNaiveErrorPasses) {
  Sheet sheet;
  for (double& value : sheet.actual) value -= 1.99e-6;
  const Judgement judgement = sheet.judged();
  EXPECT_EQ(judgement.failure, "");
  EXPECT_NEAR(judgement.max_error, 1.99e-6, 1e-12);
  EXPECT_GT(judgement.rel_l2_error, 1e-6);
}

TEST(Budget, OneElementBeyondTheMaximumFails) {
  Sheet sheet;
  sheet.actual[3 * 16 + 5] += 2e-6 + 1.2 * std::ldexp(1.0, -23);
  const std::string failure = sheet.judged().failure;
  EXPECT_NE(failure.find("o[b=0, h=0, i=3, column=5]"), std::string::npos) << failure;
  EXPECT_NE(failure.find("max error"), std::string::npos) << failure;
  EXPECT_NE(failure.find("worst columns: 5"), std::string::npos) << failure;
}

TEST(Budget, AllElementsSlightlyOffFailInL2) {
  Sheet sheet;
  for (double& value : sheet.actual) value += 2.1e-6;
  const std::string failure = sheet.judged().failure;
  EXPECT_NE(failure.find("relative L2"), std::string::npos) << failure;
  EXPECT_EQ(sheet.judged(DType::float32, true).failure, "") << "a logarithm has no L2 budget";
}

TEST(Budget, NanInTheReferenceNeverMakesItPass) {
  Sheet sheet;
  sheet.reference[7] = nan_value;
  EXPECT_NE(sheet.judged().failure, "") << "a number where the oracle has NaN";
  sheet.actual[7] = nan_value;
  EXPECT_EQ(sheet.judged().failure, "");
  sheet.actual[9] += 1e-3;
  EXPECT_NE(sheet.judged().failure, "") << "an error elsewhere";
}

TEST(Budget, NanAndInfinitiesStandAtTheirPlaces) {
  for (const double wrong : {nan_value, infinity, -infinity}) {
    Sheet sheet;
    sheet.actual[20] = wrong;
    EXPECT_NE(sheet.judged().failure, "");
    sheet.reference[20] = std::isnan(wrong) ? infinity : -wrong;
    EXPECT_NE(sheet.judged().failure, "");
    sheet.reference[20] = wrong;
    EXPECT_EQ(sheet.judged().failure, "");
  }
}

TEST(Budget, AReferenceThatOverflowsTheDtypeIsInfinite) {
  Sheet sheet;
  sheet.reference[0] = 1e6;
  sheet.actual[0] = infinity;
  EXPECT_EQ(sheet.judged(DType::float16).failure, "");
  EXPECT_NE(sheet.judged(DType::float32).failure, "");
}

TEST(Budget, ANaiveOverflowAllowsNothing) {
  Sheet sheet;
  sheet.naive.assign(128, nan_value);
  sheet.actual[5] += 1e-5;
  EXPECT_NE(sheet.judged().failure, "");
}

TEST(Budget, AZeroReferenceAllowsNoError) {
  Sheet sheet;
  sheet.reference.assign(128, 0);
  sheet.naive.assign(128, 0);
  sheet.actual.assign(128, 0);
  EXPECT_EQ(sheet.judged().failure, "");
  sheet.actual[100] = 1e-20;
  EXPECT_NE(sheet.judged().failure, "");
}

}  // namespace
}  // namespace tilewise::verify
