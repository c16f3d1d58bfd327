#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "bench_inputs.hpp"
#include "command.hpp"
#include "files/source.hpp"
#include "grid.hpp"
#include "timing.hpp"

namespace tilewise::cli {
namespace {

Grid grid_of(const std::string& problems) {
  return parse_grid(R"({"schema": 1, "name": "g", "problems": )" + problems + "}", "g.json");
}

TEST(Grid, ListsExpandInOrder) {
  const Grid grid = grid_of(R"([{"S": [64, 128], "D": 32, "causal": [true, false]}])");
  ASSERT_EQ(grid.problems.size(), 4U);
  EXPECT_EQ(grid.problems[0].name, "S64 causal");
  EXPECT_EQ(grid.problems[1].name, "S64 full");
  EXPECT_EQ(grid.problems[3].name, "S128 full");
  EXPECT_EQ(grid.problems[2].q_len, 128);
  EXPECT_EQ(grid.problems[2].kv_len, 128);
  EXPECT_EQ(grid.problems[2].v_dim, 32);
  EXPECT_EQ(grid.problems[2].right, 0);
  EXPECT_FALSE(grid.problems[3].right);
}

TEST(Grid, WindowsCountTheQuerysOwnKeyAndBandsGetTheirCorner) {
  const Grid grid = grid_of(R"([{"name": "a", "S": 8, "window": 3}, {"name": "b", "Sq": 1, "Sk": 8, "right": 0}])");
  EXPECT_EQ(grid.problems[0].left, 2);
  EXPECT_EQ(grid.problems[0].right, 0);
  EXPECT_FALSE(grid.problems[0].alignment);
  EXPECT_EQ(grid.problems[1].alignment, Alignment::bottom_right);
  EXPECT_EQ(forward_flops(grid.problems[0]), 2 * 128 * (1 + 2 + 6 * 3));
  EXPECT_EQ(forward_flops(grid.problems[1]), 2 * 128 * 8);
}

TEST(Grid, MalformedFilesAreRefused) {
  for (const char* problems :
       {R"([{"X": 1}])", R"([{"S": -1}])", R"([{"S": 0}])", R"([{"S": 1.5}])", R"([{"S": "1"}])", R"([{"S": [[1]]}])",
        R"([{"causal": 1}])", R"([{"Hq": 3, "Hkv": 2}])", R"([{"alignment": "left"}])", R"([1])", R"({})", "[",
        R"([{"name": 1}])", R"([{"S": 99999999999999999999}])"}) {
    EXPECT_THROW(grid_of(problems), files::FileError) << problems;
  }
  EXPECT_THROW(parse_grid("{}", "g.json"), files::FileError);
  EXPECT_THROW(parse_grid(R"({"schema": 2, "problems": []})", "g.json"), files::FileError);
}

TEST(Grid, ShippedGridsLoadAndHaveTheFoundingShape) {
  for (const char* name : {"founding", "long", "backward", "decode", "models"}) {
    EXPECT_FALSE(load_grid(name, "").problems.empty()) << name;
  }
  EXPECT_EQ(load_grid("founding", "").problems.size(), 16U);
  EXPECT_THROW(load_grid("none", ""), UsageError);
}

TEST(Grid, ShrinkingStopsAtTheLimit) {
  GridProblem problem = grid_of(R"([{"name": "x", "S": 16384, "D": 128}])").problems[0];
  EXPECT_EQ(forward_flops(problem), 0x1p37);
  shrink(problem, 0x1p37);
  EXPECT_EQ(problem.q_len, 16384);
  shrink(problem, 0x1p34);
  EXPECT_EQ(problem.q_len, 4096);
  EXPECT_EQ(problem.name, "x S/4");
  GridProblem decode = grid_of(R"([{"name": "x", "Sq": 1, "Sk": 4, "D": 64}])").problems[0];
  shrink(decode, 0);
  EXPECT_EQ(decode.kv_len, 1);
}

TEST(BenchInputs, AreReproducibleAlignedAndNormal) {
  const GridProblem problem =
      grid_of(R"([{"S": 64, "D": 64, "H": 4, "sinks": true, "ragged": true, "B": 3}])").problems[0];
  const BenchInputs a = make_inputs(problem);
  const BenchInputs b = make_inputs(problem);
  const auto* q = static_cast<const float*>(a.tensors.q.data);
  const auto* k = static_cast<const float*>(a.tensors.k.data);
  double mean = 0;
  double square = 0;
  for (std::int64_t i = 0; i < a.q.element_count(); ++i) {
    EXPECT_EQ(q[i], static_cast<const float*>(b.tensors.q.data)[i]);
    mean += double(q[i]);
    square += double(q[i]) * double(q[i]);
  }
  const auto n = static_cast<double>(a.q.element_count());
  EXPECT_NEAR(mean / n, 0, 0.03);
  EXPECT_NEAR(square / n, 1, 0.03);
  EXPECT_NE(q[0], k[0]);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(q) % 64, 0U);
  EXPECT_TRUE(a.options.sinks.present());
  const auto* lengths = static_cast<const std::int32_t*>(a.options.kv_lengths.data);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(lengths[i], 32);
    EXPECT_LE(lengths[i], 64);
  }
}

TEST(Timing, BatchesAlternateAndStatisticsAreOrdered) {
  std::vector<std::size_t> order;
  int calls = 0;
  const std::function<void()> contenders[] = {[&] { ++calls; },
                                              [] { std::this_thread::sleep_for(std::chrono::milliseconds(25)); }};
  const std::vector<Timing> timings = time_interleaved(contenders, [&](std::size_t i) { order.push_back(i); });
  ASSERT_EQ(order.size(), 2U + 2 * batch_count);  // the warm-ups come first
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i % 2);
  EXPECT_EQ(timings[1].calls_per_batch, 1);
  EXPECT_GT(timings[0].calls_per_batch, 1000);
  EXPECT_GE(calls, 7 * timings[0].calls_per_batch);
  for (const Timing& timing : timings) {
    EXPECT_LE(timing.least, timing.median);
    EXPECT_LE(timing.median, timing.most);
  }
  EXPECT_GE(timings[1].least, 0.025);
}

TEST(Text, Durations) {
  EXPECT_EQ(duration_text(1.5e-6), "1.500 us");
  EXPECT_EQ(duration_text(0.01234), "12.34 ms");
  EXPECT_EQ(duration_text(123.45), "123.5 s");
  EXPECT_EQ(duration_text(0), "0.000 us");
  EXPECT_EQ(spread_text(2e-3, 0.9e-3, 3e-3), "2.000 ms (0.900 - 3.000)");
  EXPECT_EQ(bytes_text(999), "999 bytes");
  EXPECT_EQ(bytes_text(1500), "1.50 kB");
}

}  // namespace
}  // namespace tilewise::cli
