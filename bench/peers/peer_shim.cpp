// What shim.py calls through ctypes: one forward problem on given addresses, planned once and run many times. Every
// tensor is contiguous, in the layouts of attention.hpp. Grids, peaks and the machine are the command's own.

#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "grid.hpp"
#include "machine.hpp"
#include "peaks.hpp"
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

nlohmann::ordered_json bound(std::optional<std::int64_t> b) {
  return b ? nlohmann::ordered_json(*b) : nlohmann::ordered_json(nullptr);
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

// The three below return text that lives until the next call of the same function.

// The names of all kernels, one a line.
PEER_EXPORT const char* peer_kernels() {
  static std::string text;
  text.clear();
  for (const std::string& name : tilewise::kernel_names()) text += name + "\n";
  return text.c_str();
}

// The machine object of the benchmarks' JSON, with its peaks; takes about two seconds.
PEER_EXPORT const char* peer_machine() {
  static std::string text;
  nlohmann::ordered_json machine = tilewise::cli::machine_json();
  machine["peaks"] = tilewise::cli::to_json(tilewise::cli::measure_peaks());
  text = machine.dump();
  return text.c_str();
}

// The problems of a grid as `tilewise bench` understands it, each shrunk to `most_flops` as there (0: not at all): a
// list of the fields of shim.py's Problem. Null on failure, with the reason in message [size bytes].
PEER_EXPORT const char* peer_grid(const char* name, double most_flops, char* message, std::size_t size) {
  static std::string text;
  try {
    nlohmann::ordered_json problems = nlohmann::ordered_json::array();
    for (tilewise::cli::GridProblem p : tilewise::cli::load_grid(name, "").problems) {
      if (most_flops > 0) tilewise::cli::shrink(p, most_flops);
      const bool plain =
          !p.backward && !p.scale && !p.softcap && !p.sinks && !p.bias && !p.ragged && !p.key_mask && !p.fused;
      problems.push_back({{"name", p.name},
                          {"B", p.batch},
                          {"Hq", p.q_heads},
                          {"Hkv", p.kv_heads},
                          {"Sq", p.q_len},
                          {"Sk", p.kv_len},
                          {"D", p.head_dim},
                          {"Dv", p.v_dim},
                          {"dtype", tilewise::name_of(p.dtype)},
                          {"left", bound(p.left)},
                          {"right", bound(p.right)},
                          {"alignment", p.alignment == tilewise::Alignment::bottom_right ? "bottom_right" : "top_left"},
                          {"flops", tilewise::cli::forward_flops(p)},
                          {"plain", plain}});
    }
    text = problems.dump();
    return text.c_str();
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
    return nullptr;
  }
}
