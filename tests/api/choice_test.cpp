// Choosing, forcing, explaining and planning.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "api/problem.hpp"

namespace tilewise::test {
namespace {

TEST(Choice, ForcingByNamePrefixAndEnvironment) {
  SmallProblem problem;
  for (const std::string& name : kernel_names()) {
    const Explanation forced = explain(problem.tensors, problem.options, {.kernel = name});
    EXPECT_TRUE(forced.chosen.empty() || forced.chosen.starts_with(name)) << name;
  }
  EXPECT_EQ(explain(problem.tensors, problem.options, {.kernel = "cpu.scalar"}).chosen, "cpu.scalar.forward");
  setenv("TILEWISE_KERNEL", "cpu.scalar", 1);
  EXPECT_EQ(explain(problem.tensors, problem.options).chosen, "cpu.scalar.forward");
  EXPECT_EQ(std::string(Plan(problem.tensors, problem.options).kernel()), "cpu.scalar.forward");
  setenv("TILEWISE_KERNEL", "imaginary", 1);
  EXPECT_THROW(attention_forward(problem.tensors, problem.options), std::invalid_argument);
  EXPECT_EQ(explain(problem.tensors, problem.options, {.kernel = "cpu.scalar"}).chosen, "cpu.scalar.forward")
      << "the option wins over the environment";
  unsetenv("TILEWISE_KERNEL");
}

TEST(Choice, EveryKernelIsAccountedFor) {
  SmallProblem problem;
  const Explanation explanation = explain(problem.tensors, problem.options);
  EXPECT_EQ(explanation.ready.size() + explanation.refused.size(), kernel_names().size());
  EXPECT_EQ(explanation.chosen, explanation.ready.front());
  for (const Refusal& refusal : explanation.refused) EXPECT_FALSE(refusal.reason.empty()) << refusal.kernel;
}

TEST(Explain, CountsUsefulWorkAndTiles) {
  SmallProblem problem;
  problem.options.band = {.causal = true, .alignment = Alignment::top_left};
  const Explanation causal = explain(problem.tensors, problem.options, {.kernel = "cpu.scalar"});
  const double pairs = 2 * 4 * (1 + 2 + 3 + 4 + 5);  // B * Hq * triangle
  EXPECT_EQ(causal.flops, 2 * (8 + 6) * pairs);
  const double elements = 2.0 * (4 * 5 * (8 + 6) + 2 * 7 * (8 + 6)) + 2 * 4 * 5;
  EXPECT_EQ(causal.bytes, 4 * elements);
  EXPECT_EQ(causal.tiles_total, 2 * 4 * 5);  // one tile of 64 keys per query row
  problem.options.band = {.left = -3, .right = 100, .alignment = Alignment::top_left};  // key j >= i + 3
  EXPECT_EQ(explain(problem.tensors, problem.options, {.kernel = "cpu.scalar"}).tiles_visited, 2 * 4 * 4);
}

TEST(Explain, NeedsNoAddresses) {
  SmallProblem problem;
  const Explanation with = explain(problem.tensors, problem.options);
  problem.tensors.q.data = problem.tensors.k.data = problem.tensors.v.data = nullptr;
  problem.tensors.o.data = problem.tensors.lse.data = nullptr;
  const Explanation without = explain(problem.tensors, problem.options);
  EXPECT_EQ(without.chosen, with.chosen);
  EXPECT_EQ(without.flops, with.flops);
  EXPECT_EQ(workspace_size(problem.tensors), Plan(problem.tensors).workspace_size());
}

TEST(PlanTest, RunsOnOtherAddressesAndRefusesOtherShapes) {
  SmallProblem first;
  SmallProblem second;
  for (float& x : second.v) x *= 2;
  const Plan plan(first.tensors, first.options);
  attention_forward(second.tensors, second.options);
  const std::vector<float> expected = second.o;
  plan.run(second.tensors, second.options);
  EXPECT_EQ(second.o, expected);

  SmallProblem bent;
  bent.options.scale = 2.0;
  EXPECT_THROW(plan.run(bent.tensors, bent.options), std::invalid_argument);
  SmallProblem shorter;
  for (auto* view : {&shorter.tensors.k, &shorter.tensors.v}) view->shape[2] = 6;
  EXPECT_THROW(plan.run(shorter.tensors, shorter.options), std::invalid_argument);
  SmallProblem without_lse;
  without_lse.tensors.lse = {};
  EXPECT_THROW(plan.run(without_lse.tensors, without_lse.options), std::invalid_argument);
  SmallProblem no_data;
  no_data.tensors.k.data = nullptr;
  EXPECT_THROW(plan.run(no_data.tensors, no_data.options), std::invalid_argument);
  EXPECT_TRUE(bent.untouched() && shorter.untouched() && without_lse.untouched() && no_data.untouched());
}

TEST(PlanTest, RefusesLessAlignedAddresses) {
  SmallProblem problem;
  std::vector<float> memory(problem.q.size() + 32);
  auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  address = (address + 63) / 64 * 64;
  problem.tensors.q.data = reinterpret_cast<const void*>(address);
  const Plan plan(problem.tensors, problem.options);
  EXPECT_NO_THROW(plan.run(problem.tensors, problem.options));
  problem.tensors.q.data = reinterpret_cast<const void*>(address + 4);
  EXPECT_THROW(plan.run(problem.tensors, problem.options), std::invalid_argument);
}

}  // namespace
}  // namespace tilewise::test
