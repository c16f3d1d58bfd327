// Whole attention calls on the pool from many threads at once, and in a forked child: the bits of a call alone.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tilewise/attention.hpp"

namespace tilewise {
namespace {

// B = 2, Hq = 4, Hkv = 2, causal; values from a small generator, so that every problem differs.
class Call {
 public:
  explicit Call(std::uint32_t seed, std::int64_t length) : length_(length) {
    for (auto* tensor : {&q_, &k_, &v_}) {
      tensor->resize(static_cast<std::size_t>(2 * 4 * length * head_dim));
      for (float& value : *tensor) {
        seed = seed * 1664525U + 1013904223U;
        value = static_cast<float>(seed >> 8U) * 0x1p-23F - 1;
      }
    }
    o_.resize(q_.size());
    options_.band.causal = true;
  }

  const std::vector<float>& run(int threads, const char* kernel) {
    attention_forward(tensors(), options_, {.max_threads = threads, .kernel = kernel});
    return o_;
  }
  const std::vector<float>& run_plan(const Plan& plan) {
    plan.run(tensors(), options_);
    return o_;
  }
  [[nodiscard]] Plan plan(int threads) { return Plan(tensors(), options_, {.max_threads = threads}); }

 private:
  static constexpr std::int64_t head_dim = 16;
  ForwardTensors tensors() {
    return {contiguous_view(static_cast<const void*>(q_.data()), DType::float32, {2, 4, length_, head_dim}),
            contiguous_view(static_cast<const void*>(k_.data()), DType::float32, {2, 2, length_, head_dim}),
            contiguous_view(static_cast<const void*>(v_.data()), DType::float32, {2, 2, length_, head_dim}),
            contiguous_view(static_cast<void*>(o_.data()), DType::float32, {2, 4, length_, head_dim})};
  }

  std::int64_t length_;
  std::vector<float> q_, k_, v_, o_;
  AttentionOptions options_;
};

class ConcurrentCalls : public testing::TestWithParam<const char*> {};

TEST_P(ConcurrentCalls, GiveTheBitsOfACallAlone) {
  const char* const kernel = GetParam();
  std::atomic<int> different{0};
  std::vector<std::thread> callers;
  for (std::uint32_t caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&different, caller, kernel] {
      Call call(caller, 33 + 16 * static_cast<std::int64_t>(caller % 3));
      const std::vector<float> alone = call.run(1, kernel);
      for (int repeat = 0; repeat < 10; ++repeat) {
        if (call.run(2 + repeat % 3, kernel) != alone) different.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(different.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, ConcurrentCalls, testing::Values("", "cpu.scalar"),
                         [](const auto& one) { return *one.param == '\0' ? "Chosen" : "Scalar"; });

TEST(ConcurrentPlans, OnePlanServesManyThreads) {
  Call first(1, 40);
  const Plan plan = first.plan(3);
  std::atomic<int> different{0};
  std::vector<std::thread> callers;
  for (std::uint32_t caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      Call call(caller, 40);
      const std::vector<float> alone = call.run(1, "");
      for (int repeat = 0; repeat < 10; ++repeat) {
        if (call.run_plan(plan) != alone) different.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(different.load(), 0);
}

#if !defined(__SANITIZE_THREAD__)  // its runtime ends a forked child that makes threads
TEST(ForkedCalls, ChildGivesTheParentsBits) {
  Call call(7, 65);
  const std::vector<float> expected = call.run(4, "");
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::exit(Call(7, 65).run(4, "") == expected ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(call.run(4, ""), expected);
}
#endif

}  // namespace
}  // namespace tilewise
