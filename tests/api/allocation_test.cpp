// Plan::run with a workspace allocates nothing: operator new counts while it runs. Ladder rungs are exempt, as
// documented.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "api/problem.hpp"

namespace {

std::atomic<long> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes > 0 ? bytes : 1) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, sizeof(void*) * 2); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tilewise::test {
namespace {

TEST(Allocation, CountingWorks) {
  const long before = allocations;
  std::vector<double> values(100);
  EXPECT_EQ(values.size(), 100u);
  EXPECT_GT(allocations, before);
}

TEST(Allocation, PlansAllocateNothingInALoop) {
  int kernels = 0;
  for (const std::string& name : kernel_names()) {
    if (name.starts_with("ladder.")) continue;
    SmallProblem problem;
    problem.options.band = {.causal = true, .alignment = Alignment::bottom_right};
    if (explain(problem.tensors, problem.options, {.kernel = name}).chosen != name) continue;
    const Plan plan(problem.tensors, problem.options, {.max_threads = 2, .kernel = name});
    std::vector<std::byte> memory(plan.workspace_size() + 64);
    void* aligned = memory.data();
    std::size_t space = memory.size();
    ASSERT_NE(std::align(64, plan.workspace_size(), aligned, space), nullptr);
    const ExecutionOptions execution{.workspace = {aligned, plan.workspace_size()}, .max_threads = 2};
    plan.run(problem.tensors, problem.options, execution);  // the pool starts its threads here
    const long before = allocations;
    for (int repeat = 0; repeat < 100; ++repeat) plan.run(problem.tensors, problem.options, execution);
    EXPECT_EQ(allocations, before) << name;
    ++kernels;
  }
  EXPECT_GE(kernels, 1);
}

}  // namespace
}  // namespace tilewise::test
