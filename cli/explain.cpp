// tilewise explain: what a call would do, without doing it.
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "attention_flags.hpp"
#include "command.hpp"
#include "files/source.hpp"
#include "tensor_input.hpp"

namespace tilewise::cli {
namespace {

constexpr const char* explain_examples = R"(Examples:
  tilewise explain --q-shape 1,32,4096,128 --kv-shape 1,8,4096,128 --dtype bfloat16 --causal
  tilewise explain --input in.safetensors --causal --json
      the call that `tilewise run` would make with the same options

Shows the kernel that runs, the kernels that cannot and why, how many tiles of the score matrix are visited, the
useful FLOPs (2 (D + Dv) per visible query-key pair) and the bytes of q, k, v, o and lse, each once.)";

struct ExplainFlags {
  InputFlags inputs;
  AttentionFlags attention;
  std::string q_shape, kv_shape, dtype;
  std::optional<std::int64_t> dv;
  bool json = false;
};

std::array<std::int64_t, max_rank> parse_shape(const char* option, const std::string& text) {
  std::array<std::int64_t, max_rank> shape{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, shape[i]);
    const bool separated = i + 1 < shape.size() ? next != end && *next == ',' : next == end;
    if (error != std::errc{} || !separated || shape[i] < 0) {
      throw UsageError(fmt::format("{}: {} is not a shape; expected four sizes from 0 on, as in 1,8,1024,64", option,
                                   files::in_quotes(text)));
    }
    at = next + 1;
  }
  if (!files::element_count(shape)) throw UsageError(fmt::format("{}: more elements than 64 bits can count", option));
  return shape;
}

// The tensors of a call on --q-shape and --kv-shape, without data.
ForwardTensors shapes_call(const ExplainFlags& flags) {
  if (flags.q_shape.empty() || flags.kv_shape.empty()) {
    throw UsageError("no problem: give --input FILE, .npy files, or --q-shape B,H,S,D and --kv-shape B,H,S,D");
  }
  const DType dtype = flags.dtype.empty() ? DType::float32 : parse_dtype("--dtype", flags.dtype);
  const auto q = parse_shape("--q-shape", flags.q_shape);
  const auto k = parse_shape("--kv-shape", flags.kv_shape);
  const auto null_view = [&](const std::array<std::int64_t, max_rank>& shape) {
    return contiguous_view(static_cast<const void*>(nullptr), dtype, {shape[0], shape[1], shape[2], shape[3]});
  };
  return {.q = null_view(q),
          .k = null_view(k),
          .v = null_view({k[0], k[1], k[2], flags.dv.value_or(k[3])}),
          .o = {},
          .lse = {}};
}

void add_outputs(ForwardTensors& call) {
  const auto& q = call.q.shape;
  call.o = contiguous_view(static_cast<void*>(nullptr), call.q.dtype, {q[0], q[1], q[2], call.v.shape[3]});
  call.lse = contiguous_view(static_cast<void*>(nullptr),
                             call.q.dtype == DType::float64 ? DType::float64 : DType::float32, {q[0], q[1], q[2]});
}

nlohmann::ordered_json to_json(const Explanation& explanation) {
  nlohmann::ordered_json refused = nlohmann::ordered_json::array();
  for (const Refusal& refusal : explanation.refused) {
    refused.push_back({{"kernel", refusal.kernel}, {"reason", refusal.reason}});
  }
  nlohmann::ordered_json json;
  json["chosen"] = explanation.chosen.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(explanation.chosen);
  json["ready"] = explanation.ready;
  json["refused"] = std::move(refused);
  json["tiles_visited"] = explanation.tiles_visited;
  json["tiles_total"] = explanation.tiles_total;
  json["flops"] = explanation.flops;
  json["bytes"] = explanation.bytes;
  return json;
}

void print(const Explanation& explanation) {
  fmt::print("{:<15}{}\n", "chosen", explanation.chosen.empty() ? "none: every kernel refuses" : explanation.chosen);
  const char* label = "also ready";
  for (const std::string& kernel : explanation.ready) {
    if (kernel == explanation.chosen) continue;
    fmt::print("{:<15}{}\n", label, kernel);
    label = "";
  }
  std::size_t width = 0;
  for (const Refusal& refusal : explanation.refused) width = std::max(width, refusal.kernel.size());
  label = "refused";
  for (const Refusal& refusal : explanation.refused) {
    fmt::print("{:<15}{:<{}}  {}\n", label, refusal.kernel, width, refusal.reason);
    label = "";
  }
  if (!explanation.chosen.empty()) {
    fmt::print("{:<15}{} visited of {}", "tiles", explanation.tiles_visited, explanation.tiles_total);
    if (explanation.tiles_total > 0) {
      fmt::print(" ({:.1f}%)",
                 100 * static_cast<double>(explanation.tiles_visited) / static_cast<double>(explanation.tiles_total));
    }
    fmt::print("\n");
  }
  fmt::print("{:<15}{:.4g}\n", "useful FLOPs", explanation.flops);
  fmt::print("{:<15}{} (q, k, v, o, lse, each once)\n", "memory", bytes_text(explanation.bytes));
}

int run(const ExplainFlags& flags) {
  AttentionOptions options = attention_options(flags.attention);
  const ExecutionOptions execution = execution_options(flags.attention);
  const bool shapes = !flags.q_shape.empty() || !flags.kv_shape.empty() || !flags.dtype.empty() || flags.dv;
  if (shapes && has_input(flags.inputs)) {
    throw UsageError("give shapes (--q-shape, --kv-shape, --dv, --dtype) or files, not both");
  }
  InputTensors inputs;
  ForwardTensors call;
  if (has_input(flags.inputs)) {
    check_input_flags(flags.inputs);
    inputs = load_inputs(flags.inputs, {});
    attach(inputs, options);
    call = forward_inputs(inputs);
  } else {
    call = shapes_call(flags);
  }
  require_alignment(options, call.q, call.k);
  add_outputs(call);
  const Explanation explanation = explain(call, options, execution);
  if (flags.json) {
    fmt::print("{}\n", to_json(explanation).dump(2));
  } else {
    print(explanation);
  }
  return ok;
}

}  // namespace

Subcommand add_explain(CLI::App& parent) {
  const auto flags = std::make_shared<ExplainFlags>();
  CLI::App* app = parent.add_subcommand("explain", "show which kernel a problem gets and why, and how much work it is");
  app->footer(explain_examples);
  app->add_flag("--json", flags->json, "print JSON");
  const char* shapes = "Shapes instead of tensors";
  app->add_option("--q-shape", flags->q_shape, "shape of q")->type_name("B,H,S,D")->group(shapes);
  app->add_option("--kv-shape", flags->kv_shape, "shape of k")->type_name("B,H,S,D")->group(shapes);
  add_integer(*app, "--dv", flags->dv, "head size of v (default: D)", 0, std::int64_t{1} << 40)->group(shapes);
  app->add_option("--dtype", flags->dtype, "float64, float32 (default), float16 or bfloat16")
      ->type_name("T")
      ->group(shapes);
  add_input_flags(*app, flags->inputs);
  add_attention_flags(*app, flags->attention);
  return {app, [flags] { return run(*flags); }};
}

}  // namespace tilewise::cli
