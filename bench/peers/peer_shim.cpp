// What shim.py calls through ctypes: one forward problem on given addresses, planned once and run many times. Every
// tensor is contiguous, in the layouts of attention.hpp.

#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tilewise/attention.hpp"

#define PEER_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr std::align_val_t workspace_alignment{64};

tilewise::DType dtype_named(std::string_view name) {
  using tilewise::DType;
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
    if (name == tilewise::name_of(dtype)) return dtype;
  }
  throw std::invalid_argument("dtype is " + std::string(name) + ", expected float64, float32, float16 or bfloat16");
}

}  // namespace

// Mirrored field by field by shim.py's Problem.
struct PeerProblem {
  std::int64_t B, Hq, Hkv, Sq, Sk, D, Dv;
  std::int64_t left, right;  // read only where bounded
  std::int32_t left_bounded, right_bounded;
  std::int32_t bottom_right;  // else top left
  std::int32_t threads;       // at most
  const char* dtype;          // of q, k, v, o
  const char* kernel;         // a name or a prefix; "" leaves the choice to the library
};

struct PeerPlan {
  std::string kernel;
  tilewise::ForwardTensors tensors;
  tilewise::AttentionOptions options;
  tilewise::ExecutionOptions execution;
  tilewise::Plan plan;

  PeerPlan(const tilewise::ForwardTensors& t, const tilewise::AttentionOptions& o, int threads, const char* kernel_name)
      : kernel(kernel_name),
        tensors(t),
        options(o),
        execution{.max_threads = threads, .kernel = kernel},
        plan(tensors, options, execution) {
    execution.workspace.bytes = plan.workspace_size();
    if (execution.workspace.bytes > 0) {
      execution.workspace.data = ::operator new(execution.workspace.bytes, workspace_alignment);
    }
  }
  ~PeerPlan() { ::operator delete(execution.workspace.data, workspace_alignment); }
  PeerPlan(const PeerPlan&) = delete;
  PeerPlan& operator=(const PeerPlan&) = delete;
};

// Null on failure, with the reason in message [size bytes]. No lse is asked for, as peers return none.
PEER_EXPORT PeerPlan* peer_plan(const PeerProblem* problem, const void* q, const void* k, const void* v, void* o,
                                char* message, std::size_t size) {
  try {
    const PeerProblem& p = *problem;
    const tilewise::DType dtype = dtype_named(p.dtype);
    tilewise::ForwardTensors tensors{.q = tilewise::contiguous_view(q, dtype, {p.B, p.Hq, p.Sq, p.D}),
                                     .k = tilewise::contiguous_view(k, dtype, {p.B, p.Hkv, p.Sk, p.D}),
                                     .v = tilewise::contiguous_view(v, dtype, {p.B, p.Hkv, p.Sk, p.Dv}),
                                     .o = tilewise::contiguous_view(o, dtype, {p.B, p.Hq, p.Sq, p.Dv})};
    tilewise::AttentionOptions options;
    if (p.left_bounded != 0) options.band.left = p.left;
    if (p.right_bounded != 0) options.band.right = p.right;
    if (!options.band.unbounded()) {
      options.band.alignment = p.bottom_right != 0 ? tilewise::Alignment::bottom_right : tilewise::Alignment::top_left;
    }
    return new PeerPlan(tensors, options, p.threads, p.kernel);
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
    return nullptr;
  }
}

// 0, or 1 when the call threw.
PEER_EXPORT int peer_run(const PeerPlan* plan) {
  try {
    plan->plan.run(plan->tensors, plan->options, plan->execution);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_run: %s\n", error.what());
    return 1;
  }
}

PEER_EXPORT const char* peer_kernel(const PeerPlan* plan) { return plan->plan.kernel(); }

PEER_EXPORT std::int64_t peer_workspace_bytes(const PeerPlan* plan) {
  return static_cast<std::int64_t>(plan->execution.workspace.bytes);
}

PEER_EXPORT void peer_free(PeerPlan* plan) { delete plan; }

PEER_EXPORT const char* peer_version() { return tilewise::version(); }
