// Whole calls of every CPU kernel by several callers at once, each on several threads of the pool. The inputs are one
// for all callers, as servers share a cache of keys; results must have the bits of a call alone. Preset tsan runs this:
// there, two tasks that write one element or one worker's scratch, or a task that reads what none has finished, are
// reported whatever the bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "verify/call.hpp"

namespace tilewise {
namespace {

using verify::Call;
using verify::Layout;
using verify::Random;
using verify::Tensor;
using verify::vector_of;

Call call_of(DType dtype, const verify::Shape& shape, Layout inputs, Layout outputs) {
  Call call;
  Random random(7);
  call.q = verify::laid_out(dtype, {shape.b, shape.hq, shape.sq, shape.d}, inputs);
  call.k = verify::laid_out(dtype, {shape.b, shape.hkv, shape.sk, shape.d}, inputs);
  call.v = verify::laid_out(dtype, {shape.b, shape.hkv, shape.sk, shape.v_dim()}, inputs);
  for (Tensor* tensor : {&call.q, &call.k, &call.v}) verify::fill_normal(*tensor, random);
  verify::add_outputs(call, outputs);
  return call;
}

// Several tiles and blocks of keys in every item, and a last one of each that is cut.
Call prefill() {
  Call call = call_of(DType::float32, {.b = 2, .hq = 4, .hkv = 2, .sq = 150, .sk = 110, .d = 24, .dv = 17},
                      Layout::contiguous, Layout::bshd);
  call.settings.band = {.left = 60, .right = 3, .alignment = Alignment::bottom_right};
  Random random(8);
  call.mask = Tensor(DType::boolean, {2, 1, 150, 110});
  verify::fill(call.mask, [&](std::int64_t) { return random.uniform() < 0.6 ? 1 : 0; });
  call.bias = Tensor(DType::float32, {4, 1, 110});
  verify::fill_normal(call.bias, random);
  return call;
}

// Keys shared out in chunks whose partial results are merged; 16 bits, so that blocks are widened. The heads' results
// are interleaved element by element.
Call decode() {
  Call call = call_of(DType::float16, {.b = 2, .hq = 8, .hkv = 2, .sq = 2, .sk = 1300, .d = 20}, Layout::bshd,
                      Layout::heads_last);
  call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
  call.kv_lengths = vector_of(DType::int32, {1300, 640});
  return call;
}

// Sequences of unlike lengths, an empty one, and rows that no sequence owns.
Call packed() {
  Call call =
      call_of(DType::bfloat16, {.hq = 4, .hkv = 1, .sq = 30, .sk = 1200, .d = 16}, Layout::padded_rows, Layout::exact);
  call.cu_q = vector_of(DType::int64, {0, 3, 3, 25});
  call.cu_k = vector_of(DType::int32, {0, 1100, 1120, 1190});
  return call;
}

// Rows that are not finite at first and computed again with more care.
Call careful() {
  Call call = call_of(DType::float64, {.b = 1, .hq = 6, .hkv = 3, .sq = 5, .sk = 530, .d = 9, .dv = 8},
                      Layout::reversed_rows, Layout::every_other);
  call.settings.softcap = 20;
  call.sinks = vector_of(DType::float32, {0, 1, -1, 2, 0, 3});
  call.alibi_slopes = vector_of(DType::float32, {0.5, 0.25, 0.125, 1, 0, 0.1});
  call.k.set(40, std::numeric_limits<double>::quiet_NaN());
  call.v.set(9000, std::numeric_limits<double>::infinity());
  return call;
}

struct Setting {
  const char* name;
  Call (*make)();
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

struct Results {
  explicit Results(const Call& call) : o(call.o), lse(call.lse) {}
  [[nodiscard]] ForwardTensors with_inputs_of(ForwardTensors tensors) {
    tensors.o = o.view();
    tensors.lse = lse.view();
    return tensors;
  }
  friend bool operator==(const Results& a, const Results& b) {
    return a.o.storage() == b.o.storage() && a.lse.storage() == b.lse.storage();
  }
  Tensor o, lse;
};

using Parameters = std::tuple<std::string, Setting>;

// Kernels for few queries do not take the many of prefill.
std::vector<Parameters> kernels_and_settings() {
  std::vector<Parameters> all;
  for (const std::string& kernel : kernel_names()) {
    if (!kernel.starts_with("cpu.")) continue;
    for (const Setting& setting : {Setting{"decode", decode}, Setting{"packed", packed}, Setting{"careful", careful}}) {
      all.emplace_back(kernel, setting);
    }
    if (!kernel.ends_with(".decode")) all.emplace_back(kernel, Setting{"prefill", prefill});
  }
  return all;
}

class ConcurrentKernels : public testing::TestWithParam<Parameters> {};

TEST_P(ConcurrentKernels, GiveTheBitsOfACallAlone) {
  const auto& [kernel, setting] = GetParam();
  Call call = setting.make();
  const ForwardTensors tensors = call.tensors();
  const AttentionOptions options = call.options();
  if (explain(tensors, options, {.kernel = kernel}).chosen != kernel) GTEST_SKIP() << kernel << " does not take it";

  Results alone(call);
  attention_forward(alone.with_inputs_of(tensors), options, {.max_threads = 1, .kernel = kernel});
  const Plan plan(tensors, options, {.max_threads = 3, .kernel = kernel});
  std::atomic<int> different{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int repeat = 0; repeat < 8; ++repeat) {
        Results mine(call);
        const ForwardTensors own = mine.with_inputs_of(tensors);
        if (caller % 2 == 0) {
          plan.run(own, options);
        } else {
          attention_forward(own, options, {.max_threads = 2 + repeat % 3, .kernel = kernel});
        }
        if (!(mine == alone)) different.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(different.load(), 0);
}

std::string test_name(const testing::TestParamInfo<Parameters>& one) {
  std::string name = std::get<0>(one.param) + "_" + std::get<1>(one.param).name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cpu, ConcurrentKernels, testing::ValuesIn(kernels_and_settings()), test_name);

}  // namespace
}  // namespace tilewise
