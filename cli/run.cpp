// tilewise run: attention on tensors from files.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>

#include "attention_flags.hpp"
#include "command.hpp"
#include "files/npy.hpp"
#include "files/output.hpp"
#include "files/safetensors.hpp"
#include "machine.hpp"
#include "tensor_input.hpp"

namespace tilewise::cli {
namespace {

constexpr const char* run_examples = R"(Examples:
  tilewise run --input in.safetensors --output out.safetensors --causal
      reads q, k, v and whatever there is of mask, bias, sinks, alibi_slopes, q_lengths, kv_lengths, cu_q, cu_k
      and block_table; writes o and lse
  tilewise run --q q.npy --k k.npy --v v.npy --o o.npy --left 127 --causal
      the same from NumPy's files: each query sees itself and 127 keys before it
  tilewise run --input data.safetensors --prefix layer0. --compare expected_o --tolerance 1e-5
      uses layer0.q, layer0.k, ..., prints the largest difference from layer0.expected_o; exit code 1 above 1e-5

Shapes: q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv], o [B, Hq, Sq, Dv], lse [B, Hq, Sq]. q, k, v and o
share one of float64, float32, float16, bfloat16. Results are written whole or not at all, over what was there; the
input file may be the output file. Nothing is written when a comparison fails. Other tensors in the file are ignored
and named.)";

struct RunFlags {
  InputFlags inputs;
  AttentionFlags attention;
  std::string output, o, lse;
  std::string compare;
  std::optional<double> tolerance;
};

struct Results {
  verify::Tensor o, lse;
};

// o and, where it is kept, lse of the call, once it is known to be valid: a wrong shape must not decide how much memory
// is asked for.
Results allocate_results(ForwardTensors call, const AttentionOptions& options, const ExecutionOptions& execution,
                         bool with_lse) {
  const std::vector<std::int64_t> lse_shape{call.q.shape[0], call.q.shape[1], call.q.shape[2]};
  std::vector<std::int64_t> o_shape = lse_shape;
  o_shape.push_back(call.v.shape[3]);
  const DType lse_dtype = call.q.dtype == DType::float64 ? DType::float64 : DType::float32;
  const std::optional<std::int64_t> elements = files::element_count(o_shape);
  const double bytes = static_cast<double>(elements.value_or(std::numeric_limits<std::int64_t>::max())) *
                       static_cast<double>(size_of(call.q.dtype));
  if (!elements || bytes > physical_memory()) {
    throw std::invalid_argument(fmt::format("o: shape {} would take {}, more than this machine's memory",
                                            files::shape_text(o_shape), bytes_text(bytes)));
  }
  call.o = contiguous_view(static_cast<void*>(nullptr), call.q.dtype, {o_shape[0], o_shape[1], o_shape[2], o_shape[3]});
  if (with_lse) {
    call.lse = contiguous_view(static_cast<void*>(nullptr), lse_dtype, {o_shape[0], o_shape[1], o_shape[2]});
  }
  explain(call, options, execution);
  return {verify::Tensor(call.q.dtype, o_shape), with_lse ? verify::Tensor(lse_dtype, lse_shape) : verify::Tensor()};
}

// The largest absolute difference; NaN equals NaN, and a NaN or infinity against anything else is infinitely far.
double largest_difference(const verify::Tensor& result, const verify::Tensor& expected) {
  double largest = 0;
  for (std::int64_t i = 0; i < result.element_count(); ++i) {
    const double a = result.get(i);
    const double b = expected.get(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double difference = std::abs(a - b);
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(largest, difference);
  }
  return largest;
}

void print_tensor(const std::string& name, const verify::Tensor& tensor) {
  fmt::print("{:<13}{} {}\n", name, name_of(tensor.dtype()), files::shape_text(tensor.shape()));
}

// Returns false when the difference is above the tolerance.
bool compare(const RunFlags& flags, const verify::Tensor& o, const verify::Tensor& expected) {
  if (expected.shape() != o.shape()) {
    throw files::FileError(fmt::format("{}: shape {} differs from o's {}", files::in_quotes(flags.compare),
                                       files::shape_text(expected.shape()), files::shape_text(o.shape())));
  }
  const double largest = largest_difference(o, expected);
  fmt::print("{:<13}{:.3g} from {}", "difference", largest, files::in_quotes(flags.compare));
  if (flags.tolerance) fmt::print(", tolerance {:.3g}", *flags.tolerance);
  fmt::print("\n");
  return !flags.tolerance || largest <= *flags.tolerance;
}

void check_flags(const RunFlags& flags) {
  if (!has_input(flags.inputs)) throw UsageError("no input: give --input FILE, or --q, --k and --v");
  check_input_flags(flags.inputs);
  const bool npy = !flags.inputs.files.empty();
  if (npy && !flags.output.empty()) throw UsageError("--output belongs to --input; with .npy files give --o FILE");
  if (!npy && !(flags.o.empty() && flags.lse.empty())) {
    throw UsageError("--o and --lse belong to .npy inputs; with --input give --output FILE");
  }
  if (flags.output.empty() && flags.o.empty() && flags.lse.empty() && flags.compare.empty()) {
    throw UsageError(fmt::format("no output: give {} FILE, or --compare to check the result without keeping it",
                                 npy ? "--o" : "--output"));
  }
  if (flags.tolerance && flags.compare.empty()) throw UsageError("--tolerance belongs to --compare");
  if (flags.tolerance && !(*flags.tolerance >= 0)) throw UsageError("--tolerance: expected a number from 0 on");
  if (!flags.o.empty() && !flags.lse.empty() && files::same_place(flags.o, flags.lse)) {
    throw UsageError("--o and --lse name the same file");
  }
  for (const std::string& path : {flags.output, flags.o, flags.lse}) {
    if (!path.empty()) files::check_writable(path);
  }
}

void write_results(const RunFlags& flags, const Results& results) {
  std::vector<std::string> headers;
  std::vector<files::OutputFile> outputs;
  headers.reserve(2);  // the outputs point into it
  if (!flags.output.empty()) {
    std::vector<files::NamedTensor> tensors{{"o", &results.o}, {"lse", &results.lse}};
    headers.push_back(files::safetensors_header(tensors));
    outputs.push_back({flags.output, {files::bytes_of(headers.back())}});
    for (const files::NamedTensor& named : tensors) outputs.back().pieces.emplace_back(named.tensor->storage());
  }
  const auto add_npy = [&](const std::string& path, const verify::Tensor& tensor) {
    if (path.empty()) return;
    headers.push_back(files::npy_header(path, tensor.dtype(), tensor.shape()));
    outputs.push_back({path, {files::bytes_of(headers.back()), tensor.storage()}});
  };
  add_npy(flags.o, results.o);
  add_npy(flags.lse, results.lse);
  files::write_files(outputs);
}

int run(const RunFlags& flags) {
  AttentionOptions options = attention_options(flags.attention);
  const ExecutionOptions execution = execution_options(flags.attention);
  check_flags(flags);
  InputTensors inputs = load_inputs(flags.inputs, flags.compare);
  attach(inputs, options);
  ForwardTensors call = forward_inputs(inputs);
  require_alignment(options, call.q, call.k);
  const bool with_lse = !flags.output.empty() || !flags.lse.empty();
  Results results = allocate_results(call, options, execution, with_lse);
  call.o = results.o.view();
  call.lse = results.lse.view();

  const Plan plan(call, options, execution);
  const auto start = std::chrono::steady_clock::now();
  plan.run(call, options, execution);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;

  for (const auto& [name, tensor] : inputs.tensors) print_tensor(name, tensor);
  if (!inputs.ignored.empty()) {
    std::string names;
    for (const std::string& name : inputs.ignored) names += (names.empty() ? "" : ", ") + files::in_quotes(name);
    fmt::print("{:<13}{}\n", "ignored", names);
  }
  fmt::print("{:<13}{}\n{:<13}{}\n", "kernel", plan.kernel(), "time", duration_text(time.count()));
  print_tensor("o", results.o);
  if (with_lse) print_tensor("lse", results.lse);
  if (!flags.compare.empty() && !compare(flags, results.o, inputs.expected)) {
    throw std::runtime_error("--compare: the result is further from the expected one than the tolerance allows");
  }
  write_results(flags, results);
  for (const std::string& path : {flags.output, flags.o, flags.lse}) {
    if (!path.empty()) fmt::print("{:<13}{}\n", "written", path);
  }
  return ok;
}

}  // namespace

Subcommand add_run(CLI::App& parent) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App* app = parent.add_subcommand("run", "compute attention on tensors from files");
  app->footer(run_examples);
  add_input_flags(*app, flags->inputs);
  const char* results = "Results";
  app->add_option("--output", flags->output, "safetensors file for o and lse")->type_name("FILE")->group(results);
  app->add_option("--o", flags->o, ".npy file for o")->type_name("FILE")->group(results);
  app->add_option("--lse", flags->lse, ".npy file for lse, the log-sum-exp of the scores")
      ->type_name("FILE")
      ->group(results);
  app->add_option("--compare", flags->compare, "print the largest difference of o from this tensor (or .npy file)")
      ->type_name("NAME")
      ->group(results);
  add_number(*app, "--tolerance", flags->tolerance, "fail when the difference is above X")->group(results);
  add_attention_flags(*app, flags->attention);
  return {app, [flags] { return run(*flags); }};
}

}  // namespace tilewise::cli
