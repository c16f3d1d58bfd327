// tilewise info: the machine, the build, and what each kernel supports, found by asking the kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "machine.hpp"
#include "tilewise/attention.hpp"

namespace tilewise::cli {
namespace {

constexpr const char* info_examples = R"(Examples:
  tilewise info
  tilewise info --json

Each kernel is asked, through explain, about small problems that use one option each; what it refuses is listed with
its reason in the JSON.)";

// A problem without data. Optional tensors point nowhere; only their shapes count.
struct Probe {
  std::int64_t batch = 1, q_heads = 1, kv_heads = 1, q_len = 64, kv_len = 64, head_dim = 64, v_dim = 64;
  DType dtype = DType::float32;
  bool transposed = false;  // [B, S, H, D] in memory
  bool lse = false;
  AttentionOptions options{};
};

ConstTensorView null_view(DType dtype, std::initializer_list<std::int64_t> shape) {
  return contiguous_view(static_cast<const void*>(nullptr), dtype, shape);
}

ForwardTensors tensors_of(const Probe& probe) {
  const auto view = [&](std::int64_t heads, std::int64_t length, std::int64_t width) {
    TensorView tensor = contiguous_view(static_cast<void*>(nullptr), probe.dtype, {probe.batch, heads, length, width});
    if (probe.transposed) tensor.strides = {length * heads * width, width, heads * width, 1};
    return tensor;
  };
  ForwardTensors tensors{.q = view(probe.q_heads, probe.q_len, probe.head_dim),
                         .k = view(probe.kv_heads, probe.kv_len, probe.head_dim),
                         .v = view(probe.kv_heads, probe.kv_len, probe.v_dim),
                         .o = view(probe.q_heads, probe.q_len, probe.v_dim)};
  if (probe.lse) {
    tensors.lse =
        contiguous_view(static_cast<void*>(nullptr), probe.dtype == DType::float64 ? DType::float64 : DType::float32,
                        {probe.batch, probe.q_heads, probe.q_len});
  }
  if (probe.options.block_table.present()) {  // two pages of 32 keys
    tensors.k = null_view(probe.dtype, {2, 1, 32, probe.head_dim});
    tensors.v = null_view(probe.dtype, {2, 1, 32, probe.v_dim});
  }
  return tensors;
}

struct Feature {
  const char* name;
  void (*use)(Probe&);
};

constexpr std::array<Feature, 16> features{{
    {"lse", [](Probe& p) { p.lse = true; }},
    {"causal", [](Probe& p) { p.options.band.causal = true; }},
    {"window", [](Probe& p) { p.options.band.left = p.options.band.right = 8; }},
    {"batch and heads", [](Probe& p) { p.batch = 2, p.q_heads = p.kv_heads = 2; }},
    {"gqa", [](Probe& p) { p.q_heads = 4, p.kv_heads = 2; }},
    {"strides", [](Probe& p) { p.q_heads = p.kv_heads = 2, p.transposed = true; }},
    {"dv", [](Probe& p) { p.v_dim = 32; }},
    {"softcap", [](Probe& p) { p.options.softcap = 30; }},
    {"mask", [](Probe& p) { p.options.mask = null_view(DType::boolean, {64, 64}); }},
    {"bias", [](Probe& p) { p.options.bias = null_view(p.dtype, {64, 64}); }},
    {"alibi", [](Probe& p) { p.options.alibi_slopes = null_view(DType::float32, {1}); }},
    {"sinks", [](Probe& p) { p.options.sinks = null_view(DType::float32, {1}); }},
    {"lengths", [](Probe& p) { p.options.q_lengths = p.options.kv_lengths = null_view(DType::int32, {1}); }},
    {"packed", [](Probe& p) { p.options.cu_q = p.options.cu_k = null_view(DType::int32, {3}); }},
    {"paged",
     [](Probe& p) {
       p.options.block_table = null_view(DType::int32, {1, 2});
       p.options.kv_lengths = null_view(DType::int32, {1});
     }},
    {"dropout", [](Probe& p) { p.options.dropout = Dropout{.p = 0.1, .seed = 1}; }},
}};

// Empty when `kernel` takes the problem, else its reason.
std::string refusal(const std::string& kernel, const Probe& probe) {
  ExecutionOptions execution;
  execution.kernel = kernel;
  const Explanation explanation = explain(tensors_of(probe), probe.options, execution);
  if (explanation.chosen == kernel) return {};
  for (const Refusal& refused : explanation.refused) {
    if (refused.kernel == kernel) return refused.reason;
  }
  return "not chosen";
}

struct Support {
  std::string kernel;
  std::vector<std::string> dtypes;
  std::vector<std::string> options;
  std::vector<std::pair<std::string, std::string>> refused;  // option or dtype, reason
};

Support support_of(const std::string& kernel) {
  Support support{.kernel = kernel, .dtypes = {}, .options = {}, .refused = {}};
  Probe plain;
  bool found = false;
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    Probe probe;
    probe.dtype = dtype;
    if (const std::string reason = refusal(kernel, probe); !reason.empty()) {
      support.refused.emplace_back(name_of(dtype), reason);
      continue;
    }
    support.dtypes.emplace_back(name_of(dtype));
    if (!found) plain = probe;
    found = true;
  }
  if (!found) return support;
  for (const Feature& feature : features) {
    Probe probe = plain;
    feature.use(probe);
    const std::string reason = refusal(kernel, probe);
    if (reason.empty()) {
      support.options.emplace_back(feature.name);
    } else {
      support.refused.emplace_back(feature.name, reason);
    }
  }
  return support;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string one_line(const Support& support) {
  if (support.dtypes.empty()) return "refuses: " + support.refused.front().second;
  std::string text = joined(support.dtypes);
  std::vector<std::string> missing;
  for (const auto& [what, reason] : support.refused) {
    const bool option =
        std::any_of(features.begin(), features.end(), [&](const Feature& feature) { return what == feature.name; });
    if (option) missing.push_back(what);
  }
  if (missing.empty()) return text + "; every option";
  if (support.options.empty()) return text + "; the plain problem only";
  return missing.size() < support.options.size() ? text + "; all but " + joined(missing)
                                                 : text + "; " + joined(support.options);
}

nlohmann::ordered_json to_json(const std::vector<Support>& supports) {
  nlohmann::ordered_json json = machine_json();
  json["threads"] = default_threads();
  json["kernels"] = nlohmann::ordered_json::array();
  for (const Support& support : supports) {
    nlohmann::ordered_json refused = nlohmann::ordered_json::array();
    for (const auto& [what, reason] : support.refused) refused.push_back({{"what", what}, {"reason", reason}});
    json["kernels"].push_back({{"name", support.kernel},
                               {"dtypes", support.dtypes},
                               {"options", support.options},
                               {"refused", std::move(refused)}});
  }
  return json;
}

int run(bool as_json) {
  std::vector<Support> supports;
  std::size_t width = 0;
  for (const std::string& kernel : kernel_names()) {
    supports.push_back(support_of(kernel));
    width = std::max(width, kernel.size());
  }
  if (as_json) {
    fmt::print("{}\n", to_json(supports).dump(2));
    return ok;
  }
  fmt::print("tilewise {}, built with {}\n\n", version(), compiler());
  fmt::print("{:<18}{}\n", "cpu", cpu_model());
  fmt::print("{:<18}{}\n", "instruction sets", instruction_sets());
  fmt::print("{:<18}{}\n", "threads", default_threads());
  fmt::print("{:<18}{}\n\n", "memory", bytes_text(physical_memory()));
  fmt::print("kernels\n");
  for (const Support& support : supports) fmt::print("  {:<{}}  {}\n", support.kernel, width, one_line(support));
  if (supports.empty()) fmt::print("  none in this build\n");
  return ok;
}

}  // namespace

Subcommand add_info(CLI::App& parent) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* app = parent.add_subcommand("info", "show the machine, the build and what each kernel supports");
  app->footer(info_examples);
  app->add_flag("--json", *json, "print JSON");
  return {app, [json] { return run(*json); }};
}

}  // namespace tilewise::cli
