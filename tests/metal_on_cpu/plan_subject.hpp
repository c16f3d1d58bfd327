#pragma once

// Planned kernels under the conformance cases of src/verify.

#include <functional>
#include <string>
#include <string_view>

#include "core/tile_range.h"
#include "float_mode.hpp"
#include "plan_runner.hpp"
#include "verify/cases.hpp"

namespace tilewise::metal_bench {

// `is_aligned`: q, k, v and o are copied to aligned row-major memory first, as allocators give it.
struct NamedGpu {
  const char* name;
  metal::Gpu gpu;
  bool is_aligned;
};
inline constexpr NamedGpu gpus[] = {
    {"m3", {9, 10}, true}, {"m1", {7, 8}, false}, {"m3_batch", {9, 0}, true}, {"m1_batch", {7, 0}, false}};

inline constexpr double byte_limit = 64e6;  // of a tensor

// What the bench has time for.
struct Limits {
  double work;          // multiply-adds of a call, rows rounded up to the 8 of a fragment
  std::int64_t length;  // queries, and keys of a kernel that does not split them
};

// A planned kernel on a GPU as the conformance cases see it. `bend` changes a plan before it runs.
inline verify::Subject subject_of(const metal::PlannedKernel& kernel, const NamedGpu& gpu, Limits limits,
                                  std::function<void(metal::LaunchPlan&)> bend = {}) {
  verify::Subject subject;
  subject.name = std::string(kernel.name) + " on " + gpu.name;
  subject.device = {DeviceKind::metal, 0};
  const std::uint32_t features = metal::features_of(gpu.gpu);
  const bool splits_keys = std::string_view(kernel.name).ends_with(".decode");
  const bool is_aligned = gpu.is_aligned || splits_keys;  // decode takes nothing else
  subject.refusal = [=, &kernel](const ForwardTensors& tensors, const AttentionOptions& options) -> std::string {
    Problem problem = api::checked_forward(tensors, options, api::Addresses::required).problem;
    const auto elements = [](const ConstTensorView& view) {
      double n = static_cast<double>(size_of(view.dtype));
      for (int i = 0; i < view.rank; ++i) n *= static_cast<double>(view.shape[static_cast<std::size_t>(i)]);
      return n;
    };
    if (elements(tensors.q) + elements(tensors.k) + elements(tensors.v) > byte_limit) return "too large for the bench";
    const AlignedCopies copies(tensors);
    if (is_aligned) problem = api::checked_forward(copies.tensors(), options, api::Addresses::required).problem;
    problem.machine.features = features;
    if (const Verdict verdict = kernel.supports(problem); !verdict) return verdict.reason;
    const auto d = [](std::int64_t x) { return static_cast<double>(x); };
    const double work = d(problem.packed_queries() ? 1 : problem.batch) * d(problem.q_heads) *
                        d(core::ceil_div(problem.q_len, 8) * 8) * d(problem.kv_len) *
                        d(problem.head_dim + problem.v_dim + 16);
    const bool is_long = problem.q_len > limits.length || (!splits_keys && problem.kv_len > limits.length);
    if (work > limits.work || is_long) return "too large for the bench";
    const metal::LaunchPlan plan = kernel.plan(problem);
    for (const metal::KernelLaunch& launch : plan.launches) {
      if (d(launch.groups[0]) * launch.groups[1] * launch.groups[2] > 2000) return "too large for the bench";
      for (const metal::BoundBuffer& buffer : launch.buffers) {
        if (d(buffer.end - buffer.begin) > byte_limit) return "too large for the bench";
      }
    }
    return {};
  };
  subject.workspace = [](const ForwardTensors&, const AttentionOptions&, const ExecutionOptions&) {
    return std::size_t{0};
  };
  subject.forward = [=, &kernel](const ForwardTensors& tensors, const AttentionOptions& options,
                                 const ExecutionOptions&) {
    api::Call call = api::checked_forward(tensors, options, api::Addresses::required);
    const AlignedCopies copies(tensors);
    if (is_aligned) call = api::checked_forward(copies.tensors(), options, api::Addresses::required);
    call.problem.machine.features = features;
    const DefaultFloatMode mode_of_the_host;
    metal::LaunchPlan plan = kernel.plan(call.problem);
    if (bend) bend(plan);
    const std::string why = run_plan_in_all_schedules(plan, call.buffers, Mode::checked);
    if (!why.empty()) throw verify::CaseFailed(why);
    if (is_aligned) copies.store(tensors.o);
  };
  return subject;
}

}  // namespace tilewise::metal_bench
