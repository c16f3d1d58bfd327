// Every planned Metal kernel x every case of src/verify that it supports, through the launch plans, in four schedules,
// with every detector on.
//
//   metal_plan_conformance [--quick] [--kernel PREFIX] [--family NAME] [--case TEXT] [--dtype NAME] [--gpu NAME]
//                          [--shard I/N] [--verbose]
//
// A case is a kernel, a GPU, an input and a dtype. GPUs: m1 and m1_batch (staged tiles), m3 and m3_batch (direct
// loads); the batch ones have no cores, so that small grids fill them: 16 rows per simdgroup instead of 8. For m3 the
// tensors are copied to aligned row-major memory first, as allocators give it; on m1 forward gets the layouts of the
// cases.
// Skipped: the kernel refuses the call, or the call is too large for the bench.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "check.hpp"
#include "plan_subject.hpp"
#include "verify/cases.hpp"

namespace tilewise::metal_bench {
namespace {

struct Options {
  bool quick = false;
  bool verbose = false;
  std::string kernel, family, name, dtype, gpu;
  std::size_t shard = 0;
  std::size_t shards = 1;
};

constexpr Limits full_limits{6e7, 1 << 20};  // about 2 s for 4 schedules
constexpr Limits quick_limits{4e6, 160};

// What the contract asks of CPUs alone.
struct Exclusion {
  const char* case_begins;
  const char* reason;
};
constexpr Exclusion exclusions[] = {
    {"B68 a hidden key of", "a masked call and a shorter one have the same bits on CPUs only"},
    {"B78 lengths and offsets beyond K are refused", "lengths in device memory are clamped, not read by the host"},
};

const char* exclusion_of(const verify::Case& one) {
  for (const Exclusion& exclusion : exclusions) {
    if (one.name.starts_with(exclusion.case_begins)) return exclusion.reason;
  }
  return nullptr;
}

// CI has minutes: each case on one GPU and in one dtype in turn, unless they are named.
constexpr DType dtype_turns[] = {DType::float32, DType::float16, DType::float32, DType::bfloat16, DType::float32};
constexpr std::size_t turns = std::size(gpus) * std::size(dtype_turns);  // a shard takes whole rounds of them
bool is_in_quick(const Options& options, std::size_t number, std::size_t gpu, DType dtype) {
  const bool is_turn = number % std::size(gpus) == gpu;
  const bool is_dtype_turn = dtype == dtype_turns[number % std::size(dtype_turns)];
  return (is_turn || !options.gpu.empty()) && (is_dtype_turn || !options.dtype.empty());
}

// Of these CI takes one in three: each is seven runs, most of them on the careful path.
constexpr const char* long_cases = "neighbours with";
bool is_left_out_of_quick(const verify::Case& one, std::size_t number) {
  return one.slow || one.similar || (one.name.starts_with(long_cases) && number % 3 != 0);
}

bool is_unfiltered(const Options& options) {
  return options.kernel.empty() && options.family.empty() && options.name.empty() && options.dtype.empty() &&
         options.gpu.empty();
}

// A selection in turns must not leave a kernel out somewhere.
void check_coverage(const std::map<std::string, int>& runs, Report& report) {
  for (const metal::PlannedKernel& kernel : metal::planned_kernels()) {
    for (const NamedGpu& gpu : gpus) {
      for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
        const std::string what = std::string(kernel.name) + " on " + gpu.name + ", " + name_of(dtype);
        report.add("coverage of " + what, runs.contains(what) ? "" : "no case ran");
      }
    }
  }
}

// The lint passes, once per kernel, GPU and dtype: address spaces and the MSL subset.
void lint_all(Report& report) {
  for (const metal::PlannedKernel& kernel : metal::planned_kernels()) {
    for (const NamedGpu& gpu : gpus) {
      for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
        Problem problem = plain_problem(32, 80, true, gpu.gpu, dtype);
        problem.softcap = dtype == DType::float16 ? 20 : 0;
        if (!gpu.is_aligned) problem.v.alignment = 1;
        if (!kernel.supports(problem)) continue;
        for (const metal::KernelLaunch& planned : kernel.plan(problem).launches) {
          std::vector<std::byte> scratch;
          const std::string what = std::string(planned.function) + " on " + gpu.name + ", " + name_of(dtype);
          report.add("lint of " + what, text_of(lint(launch_of(planned, {}, scratch))));
        }
      }
    }
  }
}

int test(const Options& options) {
  Report report;
  if (options.shard == 0 && is_unfiltered(options)) lint_all(report);
  std::map<std::string, int> skips, runs;
  std::size_t number = 0;
  for (const verify::Case& one : verify::all_cases()) {
    ++number;
    if (number / turns % options.shards != options.shard) continue;
    if (!options.family.empty() && one.family != options.family) continue;
    if (!options.name.empty() && one.name.find(options.name) == std::string::npos) continue;
    if (options.quick && is_left_out_of_quick(one, number)) continue;
    for (const DType dtype : one.dtypes) {
      if (dtype == DType::float64) continue;
      if (!options.dtype.empty() && name_of(dtype) != options.dtype) continue;
      verify::References references;
      for (const metal::PlannedKernel& kernel : metal::planned_kernels()) {
        if (!std::string_view(kernel.name).starts_with(options.kernel)) continue;
        for (std::size_t g = 0; g < std::size(gpus); ++g) {
          if (!options.gpu.empty() && options.gpu != gpus[g].name) continue;
          if (options.quick && !is_in_quick(options, number, g, dtype)) continue;
          const verify::Subject subject = subject_of(kernel, gpus[g], options.quick ? quick_limits : full_limits);
          const std::string name = subject.name + ": " + one.family + ", " + one.name + ", " + name_of(dtype);
          if (options.verbose) {
            std::printf("%s: ", name.c_str());
            std::fflush(stdout);
          }
          if (const char* reason = exclusion_of(one)) {
            report.skip();
            ++skips[std::string(kernel.name) + ": " + reason];
            continue;
          }
          const verify::CaseOutcome outcome = verify::run_case(one, dtype, subject, references);
          if (options.verbose) std::printf("%s\n", outcome.skipped ? outcome.detail.c_str() : "ran");
          if (outcome.skipped) {
            report.skip();
            ++skips[std::string(kernel.name) + ": " + outcome.detail];
          } else {
            report.add(name, outcome.passed ? "" : outcome.detail);
            ++runs[subject.name + ", " + name_of(dtype)];
          }
        }
      }
    }
  }
  for (const auto& [reason, count] : skips) std::printf("skipped %d: %s\n", count, reason.c_str());
  if (options.quick && is_unfiltered(options)) check_coverage(runs, report);
  return report.finish();
}

bool parse(int argc, char** argv, Options& options) {
  const std::map<std::string_view, std::string*> texts{{"--kernel", &options.kernel},
                                                       {"--family", &options.family},
                                                       {"--case", &options.name},
                                                       {"--dtype", &options.dtype},
                                                       {"--gpu", &options.gpu}};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--verbose") {
      options.verbose = true;
    } else if (argument == "--shard" && i + 1 < argc) {
      char* slash = nullptr;
      options.shard = std::strtoul(argv[++i], &slash, 10);
      options.shards = *slash == '/' ? std::strtoul(slash + 1, nullptr, 10) : 0;
      if (options.shard >= options.shards) return false;
    } else if (const auto text = texts.find(argument); text != texts.end() && i + 1 < argc) {
      *text->second = argv[++i];
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace tilewise::metal_bench

int main(int argc, char** argv) {
  tilewise::metal_bench::Options options;
  if (!tilewise::metal_bench::parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: metal_plan_conformance [--quick] [--kernel PREFIX] [--family NAME] [--case TEXT]\n"
                 "         [--dtype NAME] [--gpu NAME] [--shard I/N] [--verbose]\n");
    return 2;
  }
  return tilewise::metal_bench::test(options);
}
