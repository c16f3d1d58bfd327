// Would a mistake in the planned kernels be noticed? Each fault below is put into a kernel's flattened source, and a
// small problem must then fail, by a detector or by its result; without the fault the same problem must pass.

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "plan_subject.hpp"

namespace tilewise::metal_bench {
namespace {

using verify::Call;
using verify::Trial;

// Problems, small, each with what the faults below need.

Call less_than_a_tile(Trial& t) { return t.call({.sq = 13, .sk = 27, .d = 32}); }

Call tail_of_keys(Trial& t) { return t.call({.sq = 13, .sk = 43, .d = 32}); }

Call hidden_nan(Trial& t) {
  Call call = t.call({.sq = 9, .sk = 9, .d = 32});
  call.settings.band.causal = true;
  verify::Tensor v = t.normal({1, 1, 9, 32});
  verify::fill(v, [](std::int64_t flat) { return flat / 32 == 7 ? std::nan("") : 0.5; });
  call.v = v;
  return call;
}

// Maxima of even rows that grow by more than 2^8 behind the first tile of keys, while those of odd rows do not grow.
Call rising_scores(Trial& t) {
  Call call = t.call({.sq = 8, .sk = 96, .d = 32});
  verify::fill(call.q, [](std::int64_t flat) { return flat / 32 % 2 == 0 ? 1.0 : 0.0; });
  verify::fill(call.k, [](std::int64_t flat) { return static_cast<double>(flat / 32) / 50; });
  return call;
}

Call bottom_right(Trial& t) {
  Call call = t.call({.sq = 8, .sk = 24, .d = 32});
  call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
  return call;
}

Call grouped_heads(Trial& t) { return t.call({.hq = 4, .hkv = 2, .sq = 2, .sk = 40, .d = 32}); }

Call paged(Trial& t) {
  Call call = t.call({.sq = 1, .sk = 48, .d = 32});
  call.k = t.normal({3, 1, 16, 32});
  call.v = t.normal({3, 1, 16, 32});
  call.block_table = verify::laid_out(DType::int32, {1, 3}, verify::Layout::contiguous);
  verify::fill(call.block_table, [](std::int64_t page) { return static_cast<double>(2 - page); });
  call.kv_lengths = verify::vector_of(DType::int32, {41});
  return call;
}

struct PlanFault {
  const char* name;
  const char* kernel;
  const char* gpu;  // m1: staged tiles, m3: direct loads
  Call (*problem)(Trial&);
  const char* source;  // that has the fault
  const char* from;    // the text to replace, which must be there once
  const char* to;
  const char* text;  // in the failure's message
};

const char* const forward = "metal.simdgroup.forward";
const char* const decode = "metal.simdgroup.decode";
const char* const forward_source = "forward.metal";
const char* const wrong_result = "the oracle says";

const PlanFault faults[] = {
    {"no barrier before a tile is read", forward, "m1", tail_of_keys, forward_source,
     "threadgroup_barrier(mem_flags::mem_threadgroup);  // read after write", "", "race"},
    {"no barrier before a tile is written over", forward, "m1", tail_of_keys, forward_source,
     "threadgroup_barrier(mem_flags::mem_threadgroup);  // write after read", "//", "race"},
    {"rows past the end are not zeroed", forward, "m1", less_than_a_tile, forward_source, "to[e] = T(0.0f)",
     "(void)to[e]", "uninitialised"},
    {"padding key scored", forward, "m1", tail_of_keys, forward_source, "visible.first_key <= j && j < visible.end_key",
     "visible.first_key <= j", wrong_result},
    {"last key scored again for padding", forward, "m3", tail_of_keys, forward_source,
     "visible.first_key <= j && j < visible.end_key", "visible.first_key <= j", wrong_result},
    {"rows past the end written", forward, "m3", tail_of_keys, forward_source, "if (i >= keys.sequence.q_slot) return;",
     "", "bounds"},
    {"lanes of a row not added up", forward, "m3", tail_of_keys, forward_source,
     "rows.l += simd_shuffle_xor(rows.l, 8);", "", wrong_result},
    {"output not rescaled", forward, "m3", rising_scores, forward_source,
     "state.o[r][c].thread_elements() *= grown.alpha;", "state.o[r][c].thread_elements() *= 1.0f;", wrong_result},
    {"each lane decides whether to rescale", forward, "m3", rising_scores, forward_source,
     "if (!simd_any(any_outgrows)) return;", "if (!any_outgrows) return;", "divergence"},
    {"invisible NaN leaks", forward, "m3", hidden_nan, forward_source, "return {rows, redo};", "return {rows, false};",
     wrong_result},
    {"band in the other corner", forward, "m3", bottom_right, forward_source,
     "core::band_delta(core::Corner(a.corner), a.delta, sequence.q_len, sequence.k_len)", "a.delta", wrong_result},
    {"heads of a group taken in turn", forward, "m3", grouped_heads, forward_source,
     "core::kv_head_of(h, a.q_heads, a.kv_heads)", "h % a.kv_heads", wrong_result},
    {"heads of a group taken in turn, decode", decode, "m3", grouped_heads, "decode.metal",
     "keys.kv_head * part.group + n % part.group", "keys.kv_head + n % part.group * 2", wrong_result},
    {"every split walks all keys", decode, "m3", grouped_heads, "decode.metal",
     "core::split_range(sequence.k_len, a.split_keys, split)", "{0, sequence.k_len}", wrong_result},
    {"a split merged twice", decode, "m3", grouped_heads, "merge.metal",
     "rows = add(grown.rows, weight(part[0], grown.rows.m, UNIT) * part[1]);",
     "rows = add(grown.rows, weight(part[0], grown.rows.m, UNIT) * part[1] * (split == 0 ? 2.0f : 1.0f));",
     wrong_result},
    {"pages not looked up", decode, "m3", paged, "decode.metal", "core::clamped_page(entry, a.num_pages)",
     "j / page_size", wrong_result},
};

std::string flattened(const char* source) {
  const std::string folder = std::filesystem::path(TW_CACHE_DIR) / "faults";
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/flat_" + source;
  const std::string command = "python3 '" TW_SRC_DIR "/metal/flatten.py' '" TW_SRC_DIR "/metal/kernels/" +
                              std::string(source) + "' --include '" TW_SRC_DIR "' -o '" + path + "'";
  if (std::system(command.c_str()) != 0) throw BenchError("cannot flatten " + std::string(source));
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The path of the kernel with its fault; empty when there is not exactly one place for it.
std::string seeded(const PlanFault& fault, int number) {
  std::string text = flattened(fault.source);
  const std::size_t at = text.find(fault.from);
  if (at == std::string::npos || text.find(fault.from, at + 1) != std::string::npos) return {};
  text.replace(at, std::string(fault.from).size(), fault.to);
  const std::string path = TW_CACHE_DIR "/faults/plan_" + std::to_string(number) + ".metal";
  std::ofstream(path) << text;
  return path;
}

// What the problem's case says; empty when it passes.
std::string outcome_of(const PlanFault& fault, const std::string& faulty_source) {
  for (const metal::PlannedKernel& kernel : metal::planned_kernels()) {
    if (std::string(kernel.name) != fault.kernel) continue;
    for (const NamedGpu& gpu : gpus) {
      if (std::string(gpu.name) != fault.gpu) continue;
      const verify::Subject subject = subject_of(kernel, gpu, {1e9, 1000}, [&](metal::LaunchPlan& plan) {
        for (metal::KernelLaunch& launch : plan.launches) {
          if (!faulty_source.empty() && std::string(launch.source) == fault.source) {
            launch.source = faulty_source.c_str();
          }
        }
      });
      const verify::Case one{"seeded faults", fault.name, verify::only_float32, [&](Trial& t) {
                               Call call = fault.problem(t);
                               verify::add_outputs(call);
                               t.check(call);
                             }};
      verify::References references;
      const verify::CaseOutcome outcome = verify::run_case(one, DType::float32, subject, references);
      return outcome.skipped ? "refused: " + outcome.detail : outcome.passed ? "" : outcome.detail;
    }
  }
  return "no such kernel or GPU";
}

int test() {
  Report report;
  int number = 0;
  for (const PlanFault& fault : faults) {
    const std::string source = seeded(fault, number++);
    std::string why = "the text to be replaced is not in the kernel once";
    if (!source.empty()) {
      const std::string found = outcome_of(fault, source);
      const bool is_caught = found.find(fault.text) != std::string::npos;
      why = is_caught ? "" : "expected " + std::string(fault.text) + ", found " + (found.empty() ? "nothing" : found);
    }
    report.add(fault.name, why);
    report.add(std::string(fault.name) + ", put right", outcome_of(fault, ""));
  }
  return report.finish();
}

}  // namespace
}  // namespace tilewise::metal_bench

int main() { return tilewise::metal_bench::test(); }
