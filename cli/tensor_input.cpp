#include "tensor_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "command.hpp"
#include "files/npy.hpp"
#include "files/safetensors.hpp"

namespace tilewise::cli {
namespace {

struct OptionalTensor {
  const char* name;
  const char* help;
  ConstTensorView AttentionOptions::* view;
};

constexpr std::array<OptionalTensor, 9> optional_tensors{{
    {"mask", "bool, up to [B, Hq, Sq, Sk]: true attends", &AttentionOptions::mask},
    {"bias", "added to the scores, float32 or q's dtype, shaped like mask", &AttentionOptions::bias},
    {"sinks", "float32 [Hq]: a logit that joins the denominator", &AttentionOptions::sinks},
    {"alibi_slopes", "float32 [Hq] or [B, Hq]", &AttentionOptions::alibi_slopes},
    {"q_lengths", "int32 or int64 [B]: later queries are padding", &AttentionOptions::q_lengths},
    {"kv_lengths", "int32 or int64 [B]: later keys are never read", &AttentionOptions::kv_lengths},
    {"cu_q", "int32 or int64 [n+1]: packed queries [1, Hq, Tq, D]", &AttentionOptions::cu_q},
    {"cu_k", "int32 or int64 [n+1]: packed keys [1, Hkv, Tk, D]", &AttentionOptions::cu_k},
    {"block_table", "int32 [B, max_pages]: k, v are pools of pages", &AttentionOptions::block_table},
}};

std::string option_name(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

void add_file(CLI::App& app, InputFlags& flags, const std::string& name, const std::string& help) {
  app.add_option_function<std::string>(
         option_name(name), [&flags, name](const std::string& file) { flags.files[name] = file; }, help)
      ->type_name("FILE")
      ->group("Tensors in .npy files");
}

InputTensors load_safetensors(const InputFlags& flags, const std::string& expected) {
  const files::FileSource source(flags.input);
  const files::Safetensors file(source);
  InputTensors inputs;
  const auto wanted = [&](const std::string& name) {
    return name == "q" || name == "k" || name == "v" ||
           std::any_of(optional_tensors.begin(), optional_tensors.end(),
                       [&](const OptionalTensor& optional) { return name == optional.name; });
  };
  for (const auto& [full_name, stored] : file.tensors()) {
    if (!full_name.starts_with(flags.prefix)) continue;
    const std::string name = full_name.substr(flags.prefix.size());
    if (wanted(name)) {
      inputs.tensors.emplace(name, file.read(full_name));
    } else if (name != expected) {
      inputs.ignored.push_back(name);
    }
  }
  for (const char* name : {"q", "k", "v"}) {
    if (!inputs.tensors.contains(name)) {
      source.fail(fmt::format("holds no tensor {}", files::in_quotes(flags.prefix + name)));
    }
  }
  if (!expected.empty()) inputs.expected = file.read(flags.prefix + expected);
  return inputs;
}

InputTensors load_npy_files(const InputFlags& flags, const std::string& expected) {
  InputTensors inputs;
  for (const auto& [name, path] : flags.files) inputs.tensors.emplace(name, files::read_npy(files::FileSource(path)));
  if (!expected.empty()) inputs.expected = files::read_npy(files::FileSource(expected));
  return inputs;
}

}  // namespace

void add_input_flags(CLI::App& app, InputFlags& flags) {
  app.add_option("--input", flags.input, "safetensors file with q, k, v and optional tensors")
      ->type_name("FILE")
      ->group("Tensors in a safetensors file");
  app.add_option("--prefix", flags.prefix, "use the tensors whose names start so: 'layer0.' for layer0.q, ...")
      ->type_name("TEXT")
      ->group("Tensors in a safetensors file");
  add_file(app, flags, "q", "queries [B, Hq, Sq, D]");
  add_file(app, flags, "k", "keys [B, Hkv, Sk, D]; Hq is a multiple of Hkv");
  add_file(app, flags, "v", "values [B, Hkv, Sk, Dv]");
  for (const OptionalTensor& optional : optional_tensors) add_file(app, flags, optional.name, optional.help);
}

bool has_input(const InputFlags& flags) {
  return !flags.input.empty() || !flags.prefix.empty() || !flags.files.empty();
}

void check_input_flags(const InputFlags& flags) {
  if (!flags.input.empty() && !flags.files.empty()) {
    throw UsageError(fmt::format("--input and {} both name inputs: give one safetensors file or .npy files",
                                 option_name(flags.files.begin()->first)));
  }
  if (flags.input.empty() && !flags.prefix.empty()) throw UsageError("--prefix belongs to --input");
  if (!flags.input.empty()) return;
  for (const char* name : {"q", "k", "v"}) {
    if (!flags.files.contains(name)) {
      throw UsageError(fmt::format("{} F is missing: give --input F, or --q F --k F --v F", option_name(name)));
    }
  }
}

InputTensors load_inputs(const InputFlags& flags, const std::string& expected) {
  return flags.input.empty() ? load_npy_files(flags, expected) : load_safetensors(flags, expected);
}

void attach(InputTensors& inputs, AttentionOptions& options) {
  for (const OptionalTensor& optional : optional_tensors) {
    const auto tensor = inputs.tensors.find(optional.name);
    if (tensor != inputs.tensors.end()) options.*optional.view = tensor->second.view();
  }
}

ForwardTensors forward_inputs(InputTensors& inputs) {
  for (const char* name : {"q", "k", "v"}) {
    const verify::Tensor& tensor = inputs.tensors.at(name);
    if (tensor.shape().size() != max_rank) {
      throw std::invalid_argument(fmt::format("{}: shape {} has rank {}; expected 4: [batch, heads, length, head_dim]",
                                              name, files::shape_text(tensor.shape()), tensor.shape().size()));
    }
    const DType dtype = tensor.dtype();
    if (dtype == DType::boolean || dtype == DType::int32 || dtype == DType::int64) {
      throw std::invalid_argument(
          fmt::format("{}: dtype {}; expected float64, float32, float16 or bfloat16", name, name_of(dtype)));
    }
  }
  return {.q = inputs.tensors.at("q").view(),
          .k = inputs.tensors.at("k").view(),
          .v = inputs.tensors.at("v").view(),
          .o = {},
          .lse = {}};
}

}  // namespace tilewise::cli
