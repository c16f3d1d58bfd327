// Bad arguments: each is refused with a message that names it, and nothing is written.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "api/problem.hpp"

namespace tilewise::test {
namespace {

using Bend = std::function<void(SmallProblem&)>;

// Expects std::invalid_argument whose text starts with "argument:" and contains `expected`.
void expect_refused(const char* argument, const char* expected, const Bend& bend) {
  SmallProblem problem;
  bend(problem);
  try {
    attention_forward(problem.tensors, problem.options);
    ADD_FAILURE() << argument << ": accepted, expected a message with '" << expected << "'";
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with(std::string(argument) + ": ")) << text;
    EXPECT_NE(text.find(expected), std::string::npos) << text;
  }
  EXPECT_TRUE(problem.untouched()) << argument << ": something was written";
}

TEST(Validate, AcceptsTheSmallProblem) {
  SmallProblem problem;
  attention_forward(problem.tensors, problem.options);
  EXPECT_FALSE(problem.untouched());
}

TEST(Validate, MissingTensorsAndNullData) {
  expect_refused("q", "missing", [](SmallProblem& p) { p.tensors.q = {}; });
  expect_refused("k", "missing", [](SmallProblem& p) { p.tensors.k = {}; });
  expect_refused("v", "missing", [](SmallProblem& p) { p.tensors.v = {}; });
  expect_refused("o", "missing", [](SmallProblem& p) { p.tensors.o = {}; });
  expect_refused("q", "null", [](SmallProblem& p) { p.tensors.q.data = nullptr; });
  expect_refused("o", "null", [](SmallProblem& p) { p.tensors.o.data = nullptr; });
  expect_refused("lse", "null", [](SmallProblem& p) { p.tensors.lse.data = nullptr; });
}

TEST(Validate, RanksAndShapes) {
  expect_refused("q", "rank 3", [](SmallProblem& p) { p.tensors.q.rank = 3; });
  expect_refused("q", "rank 7", [](SmallProblem& p) { p.tensors.q.rank = 7; });
  expect_refused("lse", "rank 4", [](SmallProblem& p) { p.tensors.lse.rank = 4; });
  expect_refused("k", "head_dim 7", [](SmallProblem& p) { p.tensors.k.shape[3] = 7; });
  expect_refused("k", "batch 1", [](SmallProblem& p) { p.tensors.k.shape[0] = 1; });
  expect_refused("v", "[2, 2, 6, 6]", [](SmallProblem& p) { p.tensors.v.shape[2] = 6; });
  expect_refused("v", "4000000", [](SmallProblem& p) {
    p.tensors.v.shape[2] = 4000000;  // B45: K and V of different length
  });
  expect_refused("o", "[B, Hq, Sq, Dv]", [](SmallProblem& p) { p.tensors.o.shape[3] = 8; });
  expect_refused("o", "[B, Hq, Sq, Dv]", [](SmallProblem& p) { p.tensors.o.shape[2] = 4; });
  expect_refused("lse", "[B, Hq, Sq]", [](SmallProblem& p) { p.tensors.lse.shape[1] = 3; });
  expect_refused("q", "negative", [](SmallProblem& p) { p.tensors.q.shape[2] = -1; });
  expect_refused("k", "64-bit", [](SmallProblem& p) { p.tensors.k.shape[2] = std::int64_t{1} << 61; });
  expect_refused("k", "64-bit", [](SmallProblem& p) { p.tensors.k.strides[2] = std::int64_t{1} << 61; });
  expect_refused("k", "64-bit",
                 [](SmallProblem& p) { p.tensors.k.strides[2] = std::numeric_limits<std::int64_t>::min(); });
}

TEST(Validate, GroupedHeadsMustDivide) {
  expect_refused("k", "do not divide", [](SmallProblem& p) { p.tensors.k.shape[1] = p.tensors.v.shape[1] = 3; });
  expect_refused("k", "do not divide", [](SmallProblem& p) { p.tensors.k.shape[1] = p.tensors.v.shape[1] = 0; });
}

TEST(Validate, DtypesAndDevices) {
  expect_refused("q", "dtype int32", [](SmallProblem& p) { p.tensors.q.dtype = DType::int32; });
  expect_refused("k", "dtype float16, expected float32", [](SmallProblem& p) { p.tensors.k.dtype = DType::float16; });
  expect_refused("v", "dtype", [](SmallProblem& p) { p.tensors.v.dtype = DType::bfloat16; });
  expect_refused("o", "dtype", [](SmallProblem& p) { p.tensors.o.dtype = DType::bfloat16; });
  expect_refused("lse", "dtype float16", [](SmallProblem& p) { p.tensors.lse.dtype = DType::float16; });
  expect_refused("v", "device", [](SmallProblem& p) { p.tensors.v.device = {DeviceKind::cuda, 0}; });
}

TEST(Validate, MisalignedData) {
  expect_refused("q", "aligned",
                 [](SmallProblem& p) { p.tensors.q.data = static_cast<const char*>(p.tensors.q.data) + 2; });
}

TEST(Validate, Numbers) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e39}) {
    expect_refused("scale", "finite", [bad](SmallProblem& p) { p.options.scale = bad; });
  }
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL, 1e-42}) {
    expect_refused("softcap", "above 0", [bad](SmallProblem& p) { p.options.softcap = bad; });
  }
  for (const double bad : {-0.1, 1.1, std::nan("")}) {
    expect_refused("dropout", "from 0 to 1", [bad](SmallProblem& p) { p.options.dropout = Dropout{bad, 1, 0}; });
  }
}

TEST(Validate, BandNeedsItsAlignment) {
  expect_refused("alignment", "top_left", [](SmallProblem& p) { p.options.band.causal = true; });
  expect_refused("alignment", "bottom_right", [](SmallProblem& p) { p.options.band.left = 3; });
  expect_refused("right", "causal", [](SmallProblem& p) {
    p.options.band = {.causal = true, .right = 1, .alignment = Alignment::top_left};
  });
  expect_refused("delta", "alignment", [](SmallProblem& p) {
    p.options.band = {.causal = true, .alignment = Alignment::top_left, .delta = 1};
  });
  SmallProblem square;
  square.tensors.k.shape[2] = square.tensors.v.shape[2] = 5;
  square.options.band.causal = true;
  EXPECT_NO_THROW(attention_forward(square.tensors, square.options));
  const std::vector<std::int32_t> lengths{5, 4};
  square.options.kv_lengths = vector_view(lengths, DType::int32);
  EXPECT_THROW(attention_forward(square.tensors, square.options), std::invalid_argument);
  square.options.band.alignment = Alignment::bottom_right;
  EXPECT_NO_THROW(attention_forward(square.tensors, square.options));
}

TEST(Validate, MasksAndBias) {
  static const std::vector<std::uint8_t> mask(2 * 4 * 5 * 7, 1);
  static const std::vector<float> bias(2 * 4 * 5 * 7, 0.0F);
  const auto mask_of = [](std::initializer_list<std::int64_t> shape) {
    return contiguous_view(static_cast<const void*>(mask.data()), DType::boolean, shape);
  };
  const auto bias_of = [](DType dtype, std::initializer_list<std::int64_t> shape) {
    return contiguous_view(static_cast<const void*>(bias.data()), dtype, shape);
  };
  expect_refused("mask", "broadcast", [&](SmallProblem& p) { p.options.mask = mask_of({5, 6}); });
  expect_refused("mask", "broadcast", [&](SmallProblem& p) { p.options.mask = mask_of({2, 5, 7}); });  // rank 3 is Hq
  expect_refused("mask", "rank 0", [&](SmallProblem& p) { p.options.mask = mask_of({}); });
  expect_refused("mask", "float32", [&](SmallProblem& p) { p.options.mask = bias_of(DType::float32, {5, 7}); });
  expect_refused("bias", "float16", [&](SmallProblem& p) { p.options.bias = bias_of(DType::float16, {5, 7}); });
  expect_refused("bias", "bool", [&](SmallProblem& p) { p.options.bias = mask_of({5, 7}); });
  for (const auto& shape :
       {mask_of({7}), mask_of({5, 7}), mask_of({1, 7}), mask_of({4, 5, 7}), mask_of({2, 1, 1, 7})}) {
    SmallProblem problem;
    problem.options.mask = shape;
    EXPECT_NO_THROW(attention_forward(problem.tensors, problem.options));
  }
}

TEST(Validate, Vectors) {
  static const std::vector<float> slopes(8, 0.5F);
  static const std::vector<double> doubles(8, 0.5);
  expect_refused("sinks", "[Hq]", [](SmallProblem& p) { p.options.sinks = vector_view(slopes, DType::float32); });
  expect_refused("alibi_slopes", "[Hq]",
                 [](SmallProblem& p) { p.options.alibi_slopes = vector_view(slopes, DType::float32); });
  expect_refused("alibi_slopes", "dtype float64",
                 [](SmallProblem& p) { p.options.alibi_slopes = vector_view(doubles, DType::float64); });
  SmallProblem problem;
  problem.options.alibi_slopes = contiguous_view(static_cast<const void*>(slopes.data()), DType::float32, {2, 4});
  EXPECT_NO_THROW(attention_forward(problem.tensors, problem.options));
}

TEST(Validate, Lengths) {
  static const std::vector<std::int32_t> too_long{7, 8};
  static const std::vector<std::int32_t> negative{-1, 3};
  static const std::vector<std::int64_t> three{1, 2, 3};
  static const std::vector<float> floats{1, 2};
  expect_refused("kv_lengths", "entry 1 is 8, expected 0 to 7",
                 [](SmallProblem& p) { p.options.kv_lengths = vector_view(too_long, DType::int32); });
  expect_refused("q_lengths", "entry 0 is 7, expected 0 to 5",
                 [](SmallProblem& p) { p.options.q_lengths = vector_view(too_long, DType::int32); });
  expect_refused("kv_lengths", "entry 0 is -1",
                 [](SmallProblem& p) { p.options.kv_lengths = vector_view(negative, DType::int32); });
  expect_refused("kv_lengths", "expected [2]",
                 [](SmallProblem& p) { p.options.kv_lengths = vector_view(three, DType::int64); });
  expect_refused("q_lengths", "int32 or int64",
                 [](SmallProblem& p) { p.options.q_lengths = vector_view(floats, DType::float32); });
}

// One batch item holding packed sequences: 2 * 5 query rows do not fit batch 1, so the batch becomes rows.
Bend packed(const std::vector<std::int32_t>& cu_q, const std::vector<std::int32_t>& cu_k) {
  return [&cu_q, &cu_k](SmallProblem& p) {
    for (auto* shape :
         {&p.tensors.q.shape, &p.tensors.k.shape, &p.tensors.v.shape, &p.tensors.o.shape, &p.tensors.lse.shape}) {
      (*shape)[0] = 1;
    }
    p.options.cu_q = vector_view(cu_q, DType::int32);
    p.options.cu_k = vector_view(cu_k, DType::int32);
  };
}

TEST(Validate, PackedOffsets) {
  static const std::vector<std::int32_t> q{0, 2, 5};
  static const std::vector<std::int32_t> k{0, 3, 7};
  static const std::vector<std::int32_t> late{1, 3, 7};
  static const std::vector<std::int32_t> falling{0, 4, 3};
  static const std::vector<std::int32_t> beyond{0, 3, 8};
  static const std::vector<std::int32_t> shorter{0, 7};
  static const std::vector<std::int32_t> none{};
  SmallProblem fine;
  packed(q, k)(fine);
  EXPECT_NO_THROW(attention_forward(fine.tensors, fine.options));
  expect_refused("cu_k", "entry 0 is 1, expected 0", packed(q, late));
  expect_refused("cu_k", "below the one before", packed(q, falling));
  expect_refused("cu_k", "beyond the 7 rows of k", packed(q, beyond));
  expect_refused("cu_k", "expected 3 like cu_q", packed(q, shorter));
  expect_refused("cu_q", "empty", packed(none, none));
  expect_refused("cu_k", "missing", [&](SmallProblem& p) {
    packed(q, k)(p);
    p.options.cu_k = {};
  });
  expect_refused("cu_q", "missing", [&](SmallProblem& p) {
    packed(q, k)(p);
    p.options.cu_q = {};
  });
  expect_refused("q", "expected batch 1", [&](SmallProblem& p) {
    packed(q, k)(p);
    p.tensors.q.shape[0] = 2;
  });
  static const std::vector<std::uint8_t> mask(35, 1);
  expect_refused("mask", "cu_q", [&](SmallProblem& p) {
    packed(q, k)(p);
    p.options.mask = contiguous_view(static_cast<const void*>(mask.data()), DType::boolean, {5, 7});
  });
  static const std::vector<std::int32_t> lengths{2, 4};
  expect_refused("q_lengths", "entry 1 is 4, expected 0 to 3", [&](SmallProblem& p) {
    packed(q, k)(p);
    p.options.q_lengths = vector_view(lengths, DType::int32);
  });
}

// K and V of the small problem as a pool of 2 pages of 7 rows.
Bend paged(const std::vector<std::int32_t>& table, const std::vector<std::int32_t>& lengths) {
  return [&table, &lengths](SmallProblem& p) {
    p.options.block_table = contiguous_view(static_cast<const void*>(table.data()), DType::int32,
                                            {2, static_cast<std::int64_t>(table.size()) / 2});
    p.options.kv_lengths = vector_view(lengths, DType::int32);
  };
}

TEST(Validate, Pages) {
  static const std::vector<std::int32_t> table{1, 0, 0, -7};
  static const std::vector<std::int32_t> wild{1, 0, 0, 2};
  static const std::vector<std::int32_t> lengths{14, 7};  // the second sequence does not use its second page
  static const std::vector<std::int32_t> all{14, 14};
  static const std::vector<std::int32_t> beyond{15, 7};
  SmallProblem fine;
  paged(table, lengths)(fine);
  EXPECT_NO_THROW(attention_forward(fine.tensors, fine.options));
  expect_refused("block_table", "page [1, 1] is 2, expected 0 to 1", paged(wild, all));
  expect_refused("block_table", "is -7", paged(table, all));
  expect_refused("kv_lengths", "expected 0 to 14", paged(table, beyond));
  expect_refused("kv_lengths", "missing", [&](SmallProblem& p) {
    paged(table, lengths)(p);
    p.options.kv_lengths = {};
  });
  expect_refused("block_table", "expected [2", [&](SmallProblem& p) {
    paged(table, lengths)(p);
    p.options.block_table.shape[0] = 1;
  });
}

TEST(Validate, Overlaps) {
  expect_refused("o", "overlaps q", [](SmallProblem& p) { p.tensors.o.data = p.q.data(); });
  expect_refused("o", "overlaps v", [](SmallProblem& p) { p.tensors.o.data = p.v.data() + 3; });
  expect_refused("lse", "overlaps o", [](SmallProblem& p) { p.tensors.lse.data = p.o.data() + 7; });
  expect_refused("lse", "overlaps k", [](SmallProblem& p) { p.tensors.lse.data = p.k.data(); });
  expect_refused("o", "overlap itself", [](SmallProblem& p) { p.tensors.o.strides[1] = 0; });
  expect_refused("o", "overlap itself", [](SmallProblem& p) { p.tensors.o.strides[2] = 5; });
  // V as a view of K is allowed: inputs may alias.
  SmallProblem aliased;
  aliased.tensors.v = aliased.tensors.k;
  aliased.tensors.v.shape[3] = 6;
  EXPECT_NO_THROW(attention_forward(aliased.tensors, aliased.options));
}

TEST(Validate, Execution) {
  SmallProblem problem;
  const auto message = [&problem](const ExecutionOptions& execution) -> std::string {
    try {
      attention_forward(problem.tensors, problem.options, execution);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  ParallelFor broken;
  alignas(64) std::byte memory[128];
  EXPECT_TRUE(message({.max_threads = -1}).starts_with("max_threads: "));
  EXPECT_TRUE(message({.parallel_for = &broken}).starts_with("parallel_for: "));
  EXPECT_TRUE(message({.kernel = "cpu.imaginary"}).starts_with("kernel: "));
  EXPECT_TRUE(message({.workspace = {memory, 1}}).starts_with("workspace: "));
  EXPECT_TRUE(message({.workspace = {memory + 1, 127}}).starts_with("workspace: "));
  EXPECT_TRUE(problem.untouched());
}

TEST(Validate, OtherDevicesHaveNoKernelsHere) {
  SmallProblem problem;
  for (auto* view : {&problem.tensors.q, &problem.tensors.k, &problem.tensors.v}) view->device = {DeviceKind::metal, 0};
  problem.tensors.o.device = problem.tensors.lse.device = {DeviceKind::metal, 0};
  EXPECT_THROW(attention_forward(problem.tensors, problem.options), Unsupported);
  EXPECT_TRUE(problem.untouched());
}

TEST(Validate, WhatIsNotBuiltYetSaysSo) {
  EXPECT_THROW(attention_backward({}), Unsupported);
  EXPECT_THROW(attention_merge({}, {}, {}, {}), Unsupported);
}

}  // namespace
}  // namespace tilewise::test
