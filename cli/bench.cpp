// tilewise bench: times kernels on a grid of problems, and measures their errors against the oracle.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench_inputs.hpp"
#include "command.hpp"
#include "files/output.hpp"
#include "grid.hpp"
#include "machine.hpp"
#include "peaks.hpp"
#include "progress.hpp"
#include "timing.hpp"
#include "verify/oracle.hpp"
#include "verify/tensor.hpp"

namespace tilewise::cli {
namespace {

constexpr const char* bench_examples = R"(Examples:
  tilewise bench --grid founding
  tilewise bench --grid long --kernel cpu.scalar --kernel ladder --json long.json
  tilewise bench --grid my_problems.json --threads 2

Grids: founding, long, backward, decode, models, or a file like those in bench/grids. Kernels take turns batch by
batch; 3 warm-up calls and 50 ms, then seven batches of at least 20 ms each. Shown are median (least - most) of the
time per call over the batches, useful GFLOP/s, their share of the peak of fused multiply-adds measured in the same
run, and the relative L2 error of 64 rows against float64. Without --full, lengths are halved until a call has at most
2^37 FLOPs.)";

constexpr double most_flops = 0x1p37;
constexpr std::int64_t checked_rows = 64;

struct BenchFlags {
  std::string grid, folder, dtype, pass, json;
  std::vector<std::string> kernels;
  std::optional<std::int64_t> threads;
  bool full = false;
};

struct Row {
  std::string kernel;
  Timing timing;
  double gflops = 0;
  double error = 0;
};

// Evenly spaced rows of o, the first and the last among them, with their exact values.
class ErrorMeter {
 public:
  explicit ErrorMeter(const BenchInputs& inputs) : inputs_(inputs) {
    const auto& shape = inputs.tensors.o.shape;
    const std::int64_t rows = shape[0] * shape[1] * shape[2];
    const std::int64_t count = std::min(rows, checked_rows);
    for (std::int64_t n = 0; n < count; ++n) {
      // In two steps, since n * (rows - 1) could overflow.
      const std::int64_t row =
          count == 1 ? 0 : n * ((rows - 1) / (count - 1)) + n * ((rows - 1) % (count - 1)) / (count - 1);
      const verify::RowIndex index{row / shape[2] / shape[1], row / shape[2] % shape[1], row % shape[2]};
      rows_.push_back({row, verify::oracle_row(inputs.tensors, inputs.options, index).o});
    }
  }

  // Relative L2 error of what o holds now; NaN in o gives NaN.
  [[nodiscard]] double measure() const {
    const TensorView& o = inputs_.tensors.o;
    double difference = 0;
    double norm = 0;
    for (const ExactRow& row : rows_) {
      for (std::size_t d = 0; d < row.o.size(); ++d) {
        const std::int64_t at = row.row * o.shape[3] + static_cast<std::int64_t>(d);
        const double delta = verify::load_as_double(o.data, o.dtype, at) - row.o[d];
        difference += delta * delta;
        norm += row.o[d] * row.o[d];
      }
    }
    return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  }

 private:
  struct ExactRow {
    std::int64_t row;
    std::vector<double> o;
  };
  const BenchInputs& inputs_;
  std::vector<ExactRow> rows_;
};

std::vector<GridProblem> problems_of(const BenchFlags& flags) {
  Grid grid = load_grid(flags.grid, flags.folder);
  if (!flags.pass.empty() && flags.pass != "forward" && flags.pass != "backward") {
    throw UsageError(
        fmt::format("--pass: {} is not a pass; expected forward or backward", files::in_quotes(flags.pass)));
  }
  for (GridProblem& problem : grid.problems) {
    if (!flags.dtype.empty()) problem.dtype = parse_dtype("--dtype", flags.dtype);
    if (!flags.pass.empty()) problem.backward = flags.pass == "backward";
    if (problem.backward) {
      throw Unsupported("the backward pass is not built yet; --pass forward times the forward on this grid");
    }
    if (!flags.full) shrink(problem, most_flops);
  }
  return std::move(grid.problems);
}

std::vector<std::string> candidates_of(const BenchFlags& flags) {
  if (flags.kernels.empty()) return kernel_names();
  std::vector<std::string> names;
  for (const std::string& text : flags.kernels) {
    for (const std::string& name : matching_kernels(text)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

ExecutionOptions execution_of(const std::string& kernel, int threads) {
  ExecutionOptions execution;
  execution.kernel = kernel;
  execution.max_threads = threads;
  return execution;
}

std::vector<std::string> contenders_of(const GridProblem& problem, const std::vector<std::string>& candidates,
                                       int threads) {
  const BenchShapes shapes = shapes_of(problem);
  std::vector<std::string> contenders;
  for (const std::string& kernel : candidates) {
    if (explain(shapes.tensors, shapes.options, execution_of(kernel, threads)).chosen == kernel) {
      contenders.push_back(kernel);
    }
  }
  return contenders;
}

// A contender's plan with memory of its own, so that its calls allocate nothing.
class Contender {
 public:
  Contender(const BenchInputs& inputs, const std::string& kernel, int threads)
      : inputs_(inputs),
        execution_(execution_of(kernel, threads)),
        plan_(inputs.tensors, inputs.options, execution_),
        workspace_(DType::boolean, {static_cast<std::int64_t>(plan_.workspace_size())}) {
    execution_.workspace = {workspace_.view().data, plan_.workspace_size()};
    execution_.kernel = {};
  }
  void operator()() const { plan_.run(inputs_.tensors, inputs_.options, execution_); }

 private:
  const BenchInputs& inputs_;
  ExecutionOptions execution_;
  Plan plan_;
  AlignedTensor workspace_;
};

std::vector<Row> time_problem(const GridProblem& problem, const std::vector<std::string>& kernels, int threads,
                              const std::function<void(const std::string& kernel)>& step) {
  step("inputs");
  const BenchInputs inputs = make_inputs(problem);
  const ErrorMeter meter(inputs);
  std::vector<Row> rows(kernels.size());
  std::vector<std::unique_ptr<Contender>> contenders;
  std::vector<std::function<void()>> calls;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    step(kernels[i]);
    contenders.push_back(std::make_unique<Contender>(inputs, kernels[i], threads));
    calls.emplace_back([contender = contenders.back().get()] { (*contender)(); });
    calls.back()();
    rows[i].error = meter.measure();
  }
  const std::vector<Timing> timings = time_interleaved(calls, [&](std::size_t i) { step(kernels[i]); });
  const double flops = explain(inputs.tensors, inputs.options, execution_of(kernels.front(), threads)).flops;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].kernel = kernels[i];
    rows[i].timing = timings[i];
    rows[i].gflops = flops / timings[i].median * 1e-9;
  }
  return rows;
}

nlohmann::ordered_json row_json(const GridProblem& problem, const Row& row, int threads) {
  const auto or_null = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json alignment;
  if (problem.alignment) alignment = *problem.alignment == Alignment::top_left ? "top_left" : "bottom_right";
  return {{"problem",
           {{"name", problem.name},
            {"B", problem.batch},
            {"Hq", problem.q_heads},
            {"Hkv", problem.kv_heads},
            {"Sq", problem.q_len},
            {"Sk", problem.kv_len},
            {"D", problem.head_dim},
            {"Dv", problem.v_dim},
            {"dtype", name_of(problem.dtype)},
            {"band", nlohmann::ordered_json::array({or_null(problem.left), or_null(problem.right)})},
            {"alignment", std::move(alignment)},
            {"pass", "forward"}}},
          {"library", "tilewise"},
          {"kernel", row.kernel},
          {"device", "cpu"},
          {"threads", threads},
          {"batches", batch_count},
          {"calls_per_batch", row.timing.calls_per_batch},
          {"median_us", row.timing.median * 1e6},
          {"min_us", row.timing.least * 1e6},
          {"max_us", row.timing.most * 1e6},
          {"gflops", row.gflops},
          {"rel_l2_error", row.error}};
}

// The table grows while the problems are timed, so its widths are known before: from all names.
struct Widths {
  std::size_t problem = 7, kernel = 6;
};

void print_heading(const Widths& widths, const Peaks& peaks) {
  fmt::print("{}, {}\n", cpu_model(), instruction_sets());
  fmt::print("peaks, one thread: float32 {:.1f} GFLOP/s, float64 {:.1f} GFLOP/s, ", peaks.fma_f32_gflops,
             peaks.fma_f64_gflops);
  if (peaks.amx_bf16_gflops) fmt::print("AMX bfloat16 {:.0f} GFLOP/s, ", *peaks.amx_bf16_gflops);
  fmt::print("reading {:.1f} GB/s", peaks.read_gb_s);
  if (peaks.read_gb_s_2_threads) fmt::print(", by two threads {:.1f} GB/s", *peaks.read_gb_s_2_threads);
  fmt::print("\n\n{:<{}}  {:<{}}  {:>7}  {:<28}  {:>7}  {:>6}  {:>9}\n", "problem", widths.problem, "kernel",
             widths.kernel, "threads", "median (least - most)", "GFLOP/s", "% peak", "error");
}

void print_row(const Widths& widths, const std::string& label, const Row& row, int threads, double peak) {
  const std::string time = spread_text(row.timing.median, row.timing.least, row.timing.most);
  fmt::print("{:<{}}  {:<{}}  {:>7}  {:<28}  {:>7.2f}  {:>6.1f}  {:>9.2e}\n", label, widths.problem, row.kernel,
             widths.kernel, threads, time, row.gflops, 100 * row.gflops / (peak * threads), row.error);
  std::fflush(stdout);
}

int run(const BenchFlags& flags) {
  const int threads = static_cast<int>(flags.threads.value_or(1));
  const std::vector<std::string> candidates = candidates_of(flags);
  const std::vector<GridProblem> problems = problems_of(flags);
  if (!flags.json.empty()) files::check_writable(flags.json);

  Widths widths;
  for (const GridProblem& problem : problems) widths.problem = std::max(widths.problem, problem.name.size());
  for (const std::string& kernel : candidates) widths.kernel = std::max(widths.kernel, kernel.size());

  Progress progress;
  progress.show([] { return "measuring the machine's peaks"; });
  const Peaks peaks = measure_peaks();
  progress.clear();
  print_heading(widths, peaks);

  nlohmann::ordered_json json{{"schema", 1}, {"machine", machine_json()}, {"rows", nlohmann::ordered_json::array()}};
  json["machine"]["peaks"] = to_json(peaks);
  std::vector<std::string> left_out;
  for (std::size_t n = 0; n < problems.size(); ++n) {
    const GridProblem& problem = problems[n];
    const std::vector<std::string> kernels = contenders_of(problem, candidates, threads);
    if (kernels.empty()) {
      left_out.push_back(problem.name + ": no kernel takes it");
      continue;
    }
    if (const double bytes = input_bytes(problem); bytes > physical_memory() / 2) {
      left_out.push_back(
          fmt::format("{}: its tensors take {}, more than half of the memory", problem.name, bytes_text(bytes)));
      continue;
    }
    const std::vector<Row> rows = time_problem(problem, kernels, threads, [&](const std::string& what) {
      progress.show(
          [&] { return fmt::format("problem {} of {}, {}: {}", n + 1, problems.size(), problem.name, what); });
    });
    progress.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double peak = problem.dtype == DType::float64 ? peaks.fma_f64_gflops : peaks.fma_f32_gflops;
      print_row(widths, i == 0 ? problem.name : "", rows[i], threads, peak);
      json["rows"].push_back(row_json(problem, rows[i], threads));
    }
  }
  for (const std::string& text : left_out) fmt::print("left out: {}\n", text);
  if (!flags.json.empty()) {
    const std::string text = json.dump(1) + "\n";
    const files::OutputFile file{flags.json, {files::bytes_of(text)}};
    files::write_files(std::span(&file, 1));
  }
  if (json["rows"].empty()) throw Unsupported("--grid: no problem could be timed");
  return ok;
}

}  // namespace

Subcommand add_bench(CLI::App& parent) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* app = parent.add_subcommand("bench", "time kernels on a grid of problems");
  app->footer(bench_examples);
  app->add_option("--grid", flags->grid, "a grid's name, or a .json file")->type_name("NAME")->required();
  app->add_option("--grid-dir", flags->folder, "look for named grids here")->type_name("FOLDER");
  app->add_option("--kernel", flags->kernels, "only kernels whose names start so; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  app->add_option("--dtype", flags->dtype, "float64, float32, float16 or bfloat16 (default: the grid's)")
      ->type_name("T");
  app->add_option("--pass", flags->pass, "forward or backward (default: the grid's)")->type_name("P");
  add_integer(*app, "--threads", flags->threads, "threads of a call (default 1)", 1, 65536);
  app->add_option("--json", flags->json, "also write the rows as JSON")->type_name("FILE");
  app->add_flag("--full", flags->full, "do not shorten problems of more than 2^37 FLOPs");
  return {app, [flags] { return run(*flags); }};
}

}  // namespace tilewise::cli
