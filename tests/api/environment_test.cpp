// Kernels compute the same bits under a caller's flush-to-zero mode and rounding direction, and leave both as found.

#include <gtest/gtest.h>

#include <cfenv>
#include <string>
#include <vector>

#include "api/problem.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tilewise::test {
namespace {

// Values that round differently by direction, and subnormals that a flushing mode would lose: q . k is 1e-40 * 1e3.
void make_delicate(SmallProblem& problem) {
  for (std::size_t n = 0; n < problem.q.size(); ++n) problem.q[n] = n % 3 == 0 ? 1e-40F : problem.q[n] / 3;
  for (std::size_t n = 0; n < problem.v.size(); ++n) problem.v[n] = n % 2 == 0 ? 3e-39F : problem.v[n] / 7;
  problem.options.scale = 1e38;
}

// `problem` is made beforehand: making it rounds, too.
std::vector<float> result_of(const std::string& kernel, SmallProblem& problem) {
  attention_forward(problem.tensors, problem.options, {.max_threads = 1, .kernel = kernel});
  std::vector<float> bits = problem.o;
  bits.insert(bits.end(), problem.lse.begin(), problem.lse.end());
  return bits;
}

std::vector<std::string> kernels_under_test() {
  std::vector<std::string> names;
  SmallProblem problem;
  make_delicate(problem);
  for (const std::string& name : kernel_names()) {
    if (explain(problem.tensors, problem.options, {.kernel = name}).chosen == name) names.push_back(name);
  }
  return names;
}

TEST(Environment, RoundingDirectionDoesNotMatterAndIsRestored) {
  SmallProblem problem;
  make_delicate(problem);
  for (const std::string& kernel : kernels_under_test()) {
    const std::vector<float> expected = result_of(kernel, problem);
    for (const int direction : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      ASSERT_EQ(std::fesetround(direction), 0);
      const std::vector<float> actual = result_of(kernel, problem);
      EXPECT_EQ(std::fegetround(), direction) << kernel;
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(actual, expected) << kernel;
    }
  }
}

#if defined(__x86_64__)
TEST(Environment, FlushToZeroDoesNotMatterAndIsRestored) {
  SmallProblem problem;
  make_delicate(problem);
  for (const std::string& kernel : kernels_under_test()) {
    const std::vector<float> expected = result_of(kernel, problem);
    EXPECT_GT(expected[0] == 0 ? expected[2] : expected[0], 0) << "the subnormals should survive";
    const unsigned before = _mm_getcsr();
    const unsigned flushing = before | 0x8040u;  // FTZ and DAZ
    _mm_setcsr(flushing);
    const std::vector<float> actual = result_of(kernel, problem);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & 0xffc0u, flushing & 0xffc0u) << kernel;
    EXPECT_EQ(actual, expected) << kernel;
  }
}
#endif

}  // namespace
}  // namespace tilewise::test
