// Every registered kernel on every case: one test per family and kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tilewise/attention.hpp"
#include "verify/cases.hpp"
#include "verify/check.hpp"

namespace tilewise::verify {
namespace {

std::vector<std::string> host_kernels() {
  std::vector<std::string> names;
  for (const std::string& name : kernel_names()) {
    if (name.starts_with("cpu.") || name.starts_with("ladder.")) names.push_back(name);
  }
  return names;
}

std::string as_identifier(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return text;
}

using Parameters = std::tuple<std::string, std::string>;  // family, kernel

std::string test_name(const Parameters& parameters) {
  return as_identifier(std::get<0>(parameters)) + "_" + as_identifier(std::get<1>(parameters));
}

class Conformance : public testing::TestWithParam<Parameters> {
 protected:
  // Results of the whole family for all kernels when several of its tests run, so that they share the oracle's work.
  static const std::vector<CheckResult>& results_of(const std::string& family, const std::string& kernel) {
    static std::map<std::pair<std::string, std::string>, std::vector<CheckResult>> results;
    const std::string wanted = selected_tests(family) > 1 ? std::string() : kernel;
    auto [entry, is_new] = results.try_emplace({family, wanted});
    if (is_new) {
      const CheckOptions options{.kernel = wanted, .family = family, .quick = SANITIZED, .dissimilar = SANITIZED};
      run_checks(options, [&](const CheckResult& result) { entry->second.push_back(result); });
    }
    return entry->second;
  }

 private:
  static int selected_tests(const std::string& family) {
    int selected = 0;
    const std::string prefix = as_identifier(family).insert(0, 1, '/').append(1, '_');
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int s = 0; s < all.total_test_suite_count(); ++s) {
      const testing::TestSuite& suite = *all.GetTestSuite(s);
      for (int n = 0; n < suite.total_test_count(); ++n) {
        const testing::TestInfo& test = *suite.GetTestInfo(n);
        const bool of_family = std::string(test.name()).find(prefix) != std::string::npos;
        if (of_family && test.should_run()) ++selected;
      }
    }
    return selected;
  }
};

TEST_P(Conformance, HoldsOnEveryCase) {
  const auto& [family, kernel] = GetParam();
  int run = 0;
  for (const CheckResult& result : results_of(family, kernel)) {
    if (result.kernel != kernel) continue;
    if (result.outcome != Outcome::skipped) ++run;
    if (result.outcome == Outcome::failed) {
      ADD_FAILURE() << result.kernel << ": " << result.family << ", " << result.name << ", " << name_of(result.dtype)
                    << "\n  " << result.detail;
    }
    if (result.outcome == Outcome::skipped) {
      EXPECT_FALSE(result.detail.empty()) << result.name << ": skipped without a reason";
      // The scalar kernel supports everything; a machine may still lack the address space for a case.
      EXPECT_TRUE(kernel != "cpu.scalar.forward" || result.detail.find("address space") != std::string::npos)
          << result.name << ": " << result.detail;
    }
  }
  if (run == 0) GTEST_SKIP() << kernel << " supports no case of this family";
}

INSTANTIATE_TEST_SUITE_P(Kernels, Conformance,
                         testing::Combine(testing::ValuesIn(family_names()), testing::ValuesIn(host_kernels())),
                         [](const auto& one) { return test_name(one.param); });

TEST(Registry, TheBuildListsEveryFamily) {
  std::istringstream listed(CONFORMANCE_FAMILIES);
  std::vector<std::string> names;
  for (std::string name; listed >> name;) names.push_back(name);
  std::vector<std::string> expected;
  for (const std::string& family : family_names()) expected.push_back(as_identifier(family));
  EXPECT_EQ(names, expected);
}

TEST(Registry, NamesAreUnique) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Case& one : all_cases()) {
    EXPECT_TRUE(seen.insert({one.family, one.name}).second) << one.family << ", " << one.name;
  }
}

TEST(Registry, HoldsTheScalarKernel) {
  const std::vector<std::string> names = host_kernels();
  EXPECT_NE(std::find(names.begin(), names.end(), "cpu.scalar.forward"), names.end());
}

TEST(Registry, UnknownKernelsAreAnError) {
  EXPECT_THROW(run_checks({.kernel = "cpu.nothing"}, [](const CheckResult&) {}), std::invalid_argument);
}

}  // namespace
}  // namespace tilewise::verify
