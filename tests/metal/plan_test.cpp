// Launch plans: limits of the GPU for every table row, the choice of tiles, refusals in words, what buffers span.
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>

#include "metal/kernels/arguments.h"
#include "metal/launch_plan.hpp"
#include "metal/tuning.hpp"

namespace tilewise::metal {
namespace {

TensorSpec row_major(DType dtype, std::initializer_list<std::int64_t> shape) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.rank = static_cast<int>(shape.size());
  spec.alignment = 16;
  std::copy(shape.begin(), shape.end(), spec.shape.begin());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    spec.strides[d] = stride;
    stride *= spec.shape[d];
  }
  return spec;
}

struct Sizes {
  std::int64_t batch = 1, q_heads = 1, kv_heads = 1, q_len = 64, kv_len = 64, head_dim = 64, v_dim = 64;
  DType dtype = DType::float32;
  Gpu gpu{};
};

Problem problem_of(const Sizes& s) {
  Problem p;
  p.machine = {DeviceKind::metal, features_of(s.gpu)};
  p.batch = s.batch;
  p.q_heads = s.q_heads;
  p.kv_heads = s.kv_heads;
  p.q_len = s.q_len;
  p.kv_len = s.kv_len;
  p.head_dim = s.head_dim;
  p.v_dim = s.v_dim;
  p.dtype = s.dtype;
  p.q = row_major(s.dtype, {s.batch, s.q_heads, s.q_len, s.head_dim});
  p.k = row_major(s.dtype, {s.batch, s.kv_heads, s.kv_len, s.head_dim});
  p.v = row_major(s.dtype, {s.batch, s.kv_heads, s.kv_len, s.v_dim});
  p.o = row_major(s.dtype, {s.batch, s.q_heads, s.q_len, s.v_dim});
  p.lse = row_major(DType::float32, {s.batch, s.q_heads, s.q_len});
  p.scale = 0.125;
  return p;
}

const PlannedKernel& kernel_named(std::string_view name) {
  for (const PlannedKernel& kernel : planned_kernels()) {
    if (name == kernel.name) return kernel;
  }
  throw std::logic_error("no such kernel");
}
const PlannedKernel& forward() { return kernel_named("metal.simdgroup.forward"); }
const PlannedKernel& decode() { return kernel_named("metal.simdgroup.decode"); }

std::string constant_of(const KernelLaunch& launch, const std::string& name) {
  for (const auto& [key, value] : launch.constants) {
    if (key == "ATTENTION_" + name) return value;
  }
  return {};
}

struct NamedTable {
  const char* name;
  std::span<const ForwardTile> rows;
  bool is_staged;
};
const NamedTable tables[] = {{"direct", direct_tiles, false},
                             {"direct_small", direct_small_tiles, false},
                             {"staged", staged_tiles, true},
                             {"staged_small", staged_small_tiles, true}};

TEST(MetalTiles, EveryRowFitsTheGpuForAllThatItCovers) {
  for (const NamedTable& table : tables) {
    for (const ForwardTile& row : table.rows) {
      SCOPED_TRACE(std::string(table.name) + " to D = " + std::to_string(row.head_dim));
      EXPECT_NE(std::strlen(row.reason), 0U);
      EXPECT_LE(row.simdgroups * 32, static_cast<int>(max_threads));
      EXPECT_GE(row.row_blocks, 1);
      EXPECT_LE(row.row_blocks, 2);
      // Registers of a lane for O, cached Q and scores: a lane has 128, some are needed for operands and addresses.
      const int columns = v_columns(row.head_dim);
      const int q = row.cache_q ? row.row_blocks * row.head_dim / 4 : row.row_blocks * 8;
      EXPECT_LE(row.row_blocks * columns / 4 + q + row.row_blocks * row.key_blocks * 2, 96);
      if (!table.is_staged) continue;
      for (int bytes = 2; bytes <= row.element_bytes; bytes += 2) {
        for (std::int64_t d = 1; d <= row.head_dim; ++d) {
          for (const int v : {16, 64, 128}) {
            EXPECT_LE(staged_bytes(row, padded_dim(d), v, bytes), max_threadgroup_bytes)
                << d << " " << v << " " << bytes;
          }
        }
      }
    }
    EXPECT_EQ(table.rows.back().head_dim, max_head_dim);
    EXPECT_EQ(table.rows.back().element_bytes, 4);
  }
}

TEST(MetalPlans, EveryHeadDimIsPlannedWithinTheLimits) {
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    for (const Gpu gpu : {Gpu{7, 8}, Gpu{7, 0}, Gpu{9, 10}, Gpu{9, 0}}) {
      for (std::int64_t d = 0; d <= max_head_dim; ++d) {
        for (const std::int64_t v : {d, std::int64_t{0}, std::int64_t{17}, std::int64_t{512}}) {
          const Problem p = problem_of({.head_dim = d, .v_dim = v, .dtype = dtype, .gpu = gpu});
          ASSERT_TRUE(forward().supports(p)) << d << " " << v << ": " << forward().supports(p).reason;
          const LaunchPlan plan = forward().plan(p);
          ASSERT_TRUE(fits(plan)) << d << " " << v << ": " << fits(plan).reason;
          ASSERT_EQ(plan.launches.size(), 1U);
          const std::int64_t blocks = std::max<std::int64_t>(1, (v + v_columns(v) - 1) / v_columns(v));
          ASSERT_EQ(plan.launches[0].groups[2], blocks);
        }
      }
    }
  }
}

TEST(MetalPlans, TooMuchForTheGpuIsRefusedInWords) {
  LaunchPlan plan = forward().plan(problem_of({}));
  plan.launches[0].threadgroup_bytes = max_threadgroup_bytes;
  EXPECT_TRUE(fits(plan));
  plan.launches[0].threadgroup_bytes = max_threadgroup_bytes + 1;
  EXPECT_NE(fits(plan).reason.find("32769 bytes of threadgroup memory"), std::string::npos);
  plan = forward().plan(problem_of({}));
  plan.launches[0].threads = {32, 32, 1};
  EXPECT_TRUE(fits(plan));
  plan.launches[0].threads = {32, 33, 1};
  EXPECT_NE(fits(plan).reason.find("1056 threads"), std::string::npos);
}

TEST(MetalPlans, RefusalsNameTheReason) {
  const auto reason = [](const PlannedKernel& kernel, const Problem& p) { return kernel.supports(p).reason; };
  for (const PlannedKernel& kernel : planned_kernels()) {
    SCOPED_TRACE(kernel.name);
    EXPECT_NE(reason(kernel, problem_of({.head_dim = 577})).find("head_dim 577"), std::string::npos);
    EXPECT_NE(reason(kernel, problem_of({.v_dim = 577})).find("Dv 577"), std::string::npos);
    EXPECT_NE(reason(kernel, problem_of({.dtype = DType::float64})).find("float64"), std::string::npos);
    EXPECT_NE(reason(kernel, problem_of({.gpu = {6, 8}})).find("family 7"), std::string::npos);
    EXPECT_NE(reason(kernel, problem_of({.q_len = (std::int64_t{1} << 30) + 1})).find("queries"), std::string::npos);
    Problem p = problem_of({});
    p.has_dropout = true;
    EXPECT_NE(reason(kernel, p).find("dropout"), std::string::npos);
    EXPECT_THROW(kernel.plan(p), std::logic_error);
    p = problem_of({});
    p.pass = Pass::backward;
    EXPECT_NE(reason(kernel, p).find("backward"), std::string::npos);
    p = problem_of({});
    p.machine.kind = DeviceKind::cpu;
    EXPECT_FALSE(reason(kernel, p).empty());
  }
  EXPECT_NE(reason(decode(), problem_of({.q_len = 65})).find("65 query rows"), std::string::npos);
  Problem p = problem_of({.q_len = 1});
  p.k.alignment = 4;
  EXPECT_NE(reason(decode(), p).find("aligned"), std::string::npos);
  EXPECT_TRUE(forward().supports(p));
  p = problem_of({.q_len = 4});
  p.cu_q = row_major(DType::int32, {3});
  EXPECT_NE(reason(decode(), p).find("packed"), std::string::npos);
}

TEST(MetalPlans, TilesFollowGpuGridAndLayout) {
  const auto launch_for = [](const Problem& p) { return forward().plan(p).launches[0]; };
  const Sizes small{.q_len = 2048, .kv_len = 2048};
  const Sizes large{.batch = 4, .q_heads = 8, .kv_heads = 8, .q_len = 2048, .kv_len = 2048};
  EXPECT_EQ(constant_of(launch_for(problem_of(small)), "ROW_BLOCKS"), "1");
  EXPECT_EQ(constant_of(launch_for(problem_of(large)), "ROW_BLOCKS"), "2");
  EXPECT_EQ(launch_for(problem_of(small)).groups[0], 2048U / 32);
  EXPECT_EQ(launch_for(problem_of(large)).groups[0], 2048U / 64);
  EXPECT_EQ(constant_of(launch_for(problem_of(large)), "STAGED"), "0");
  EXPECT_EQ(launch_for(problem_of(large)).threadgroup_bytes, 0U);

  Sizes m1 = large;
  m1.gpu = {7, 8};
  EXPECT_EQ(constant_of(launch_for(problem_of(m1)), "STAGED"), "1");
  EXPECT_EQ(constant_of(launch_for(problem_of(m1)), "ALIGNED"), "1");
  EXPECT_EQ(launch_for(problem_of(m1)).threadgroup_bytes, 17408U);

  const auto unaligned = [&](auto bend) {
    Problem p = problem_of(large);
    bend(p);
    const KernelLaunch launch = launch_for(p);
    EXPECT_EQ(constant_of(launch, "ALIGNED"), "0");
    EXPECT_EQ(constant_of(launch, "STAGED"), "1");
  };
  unaligned([](Problem& p) { p.q.alignment = 8; });
  unaligned([](Problem& p) { p.k.strides[2] = 65; });
  unaligned([](Problem& p) { p.v.strides[3] = 2; });
  unaligned([](Problem& p) { p.o.strides[1] = 2; });
  unaligned([](Problem& p) { p.head_dim = 60; });
  // A stride that no element uses does not matter.
  Problem p = problem_of({.q_len = 2048});
  p.k.strides[0] = 3;
  EXPECT_EQ(constant_of(launch_for(p), "ALIGNED"), "1");
}

TEST(MetalPlans, ScoresHaveTermsWhenTheyAreMoreThanAScaledProduct) {
  const auto terms = [](auto bend) {
    Problem p = problem_of({});
    bend(p);
    return constant_of(forward().plan(p).launches[0], "TERMS");
  };
  EXPECT_EQ(terms([](Problem&) {}), "0");
  EXPECT_EQ(terms([](Problem& p) { p.has_right = true; }), "0");
  EXPECT_EQ(terms([](Problem& p) { p.scale = -0.125; }), "1");
  EXPECT_EQ(terms([](Problem& p) { p.scale = 0; }), "1");
  EXPECT_EQ(terms([](Problem& p) { p.scale = 1e30; }), "1");
  EXPECT_EQ(terms([](Problem& p) { p.softcap = 30; }), "1");
  EXPECT_EQ(terms([](Problem& p) { p.sinks = row_major(DType::float32, {1}); }), "1");
  EXPECT_EQ(terms([](Problem& p) { p.mask = row_major(DType::boolean, {1, 1, 64, 64}); }), "1");
}

TEST(MetalPlans, BuffersSpanExactlyTheirElements) {
  Problem p = problem_of({.batch = 2, .q_len = 5, .kv_len = 7, .head_dim = 8});
  p.k.strides = {56, 56, -8, 1};  // rows in reverse
  const KernelLaunch launch = forward().plan(p).launches[0];
  const BoundBuffer& q = launch.buffers[0];
  const BoundBuffer& k = launch.buffers[1];
  EXPECT_EQ(q.begin, 0);
  EXPECT_EQ(q.end, 2 * 5 * 8 * 4);
  EXPECT_FALSE(q.is_written);
  EXPECT_EQ(k.begin, -6 * 8 * 4);
  EXPECT_EQ(k.end, (56 + 8) * 4);
  EXPECT_TRUE(launch.buffers[3].is_written);
  EXPECT_EQ(launch.buffers[5].role, Role::none);
  EXPECT_EQ(launch.scalars.size(), sizeof(msl::ForwardArguments));
}

TEST(MetalPlans, NothingToComputeIsNoLaunch) {
  for (const PlannedKernel& kernel : planned_kernels()) {
    EXPECT_TRUE(kernel.plan(problem_of({.batch = 0})).launches.empty());
    EXPECT_TRUE(kernel.plan(problem_of({.q_heads = 0, .kv_heads = 0})).launches.empty());
    EXPECT_TRUE(kernel.plan(problem_of({.q_len = 0})).launches.empty());
  }
  // Without keys there are outputs still.
  EXPECT_EQ(forward().plan(problem_of({.kv_len = 0})).launches.size(), 1U);
}

TEST(MetalPlans, DecodeSplitsTheKeysAndSharesThem) {
  const Sizes sizes{.q_heads = 32,
                    .kv_heads = 8,
                    .q_len = 1,
                    .kv_len = 16384,
                    .head_dim = 128,
                    .v_dim = 128,
                    .dtype = DType::float16};
  const LaunchPlan plan = decode().plan(problem_of(sizes));
  ASSERT_EQ(plan.launches.size(), 2U);
  EXPECT_GT(decode().rank(problem_of(sizes)), forward().rank(problem_of(sizes)));
  EXPECT_EQ(plan.launches[0].groups[1], 8U);  // one reading per KV head
  EXPECT_EQ(plan.launches[1].groups[1], 32U);
  msl::DecodeArguments a{};
  ASSERT_EQ(plan.launches[0].scalars.size(), sizeof a);
  std::memcpy(&a, plan.launches[0].scalars.data(), sizeof a);
  EXPECT_GE(a.splits * a.split_keys, 16384);
  EXPECT_LT((a.splits - 1) * a.split_keys, 16384);
  EXPECT_EQ(a.split_keys % 32, 0);
  EXPECT_EQ(plan.scratch_bytes, static_cast<std::size_t>(32 * a.splits * (128 * 4 + 8)));

  // Batch-invariant calls are cut alike in any batch.
  Problem one = problem_of(sizes);
  Sizes sixteen_sizes = sizes;
  sixteen_sizes.batch = 16;
  Problem sixteen = problem_of(sixteen_sizes);
  EXPECT_NE(decode().plan(one).launches[0].groups[0], decode().plan(sixteen).launches[0].groups[0]);
  one.batch_invariant = sixteen.batch_invariant = true;
  EXPECT_EQ(decode().plan(one).launches[0].groups[0], decode().plan(sixteen).launches[0].groups[0]);
}

}  // namespace
}  // namespace tilewise::metal
