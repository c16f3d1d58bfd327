// The founding rungs against float64 attention, in every schedule, with every detector on. A case is a rung, N, D and a
// mask (or a special input).

#include <cstring>

#include "rungs.hpp"

namespace tilewise::metal_bench {
namespace {

std::vector<std::size_t> sizes(std::initializer_list<std::size_t> list) { return list; }

std::string name_of(int rung, const RungProblem& p) {
  return "rung " + std::to_string(rung) + " N=" + std::to_string(p.n) + " D=" + std::to_string(p.d) +
         (p.causal ? " causal" : " full");
}

std::string checked(RungProblem& p) {
  if (std::string why = run_in_all_schedules(launch_of(p), Mode::checked); !why.empty()) return why;
  return float32_rule(p);
}

// With denormals flushed, as on the GPU: weights of far keys become zero, and nothing else may happen.
std::string flushed(RungProblem& p) {
  Schedule schedule;
  schedule.flush_denormals = true;
  if (const Result result = run(launch_of(p), schedule, Mode::checked); !result.findings.empty()) {
    return text_of(result.findings);
  }
  return float32_rule(p);
}

// N as a compile-time constant, as on the GPU, gives the bits of the runtime constant.
std::string compiled_in(RungProblem& p) {
  if (std::string why = checked(p); !why.empty()) return why;
  const std::vector<float> first = p.o;
  Launch launch = launch_of(p);
  launch.runtime_constants.clear();
  launch.constants.emplace_back("ATTENTION_N", std::to_string(p.n));
  if (std::string why = run_in_all_schedules(launch, Mode::checked); !why.empty()) return why;
  if (std::memcmp(first.data(), p.o.data(), p.n * p.d * sizeof(float)) != 0) return "other bits with N compiled in";
  return text_of(lint(launch));
}

// A NaN in K and V at `key`: rows that see the key become NaN, the bits of all others stay.
std::string nan_at(RungProblem& p, std::size_t key) {
  if (std::string why = checked(p); !why.empty()) return why;
  const std::vector<float> clean = p.o;
  for (std::size_t d = 0; d < p.d; ++d) {
    p.k[key * p.d + d] = std::numeric_limits<float>::quiet_NaN();
    p.v[key * p.d + d] = std::numeric_limits<float>::quiet_NaN();
  }
  if (std::string why = run_in_all_schedules(launch_of(p), Mode::checked); !why.empty()) return why;
  for (std::size_t i = 0; i < p.n; ++i) {
    const bool sees = !p.causal || key <= i;
    for (std::size_t d = 0; d < p.d; ++d) {
      const std::size_t e = i * p.d + d;
      if (sees && !std::isnan(p.o[e])) return "row " + std::to_string(i) + " swallows a NaN";
      if (!sees && std::memcmp(&clean[e], &p.o[e], sizeof(float)) != 0)
        return "row " + std::to_string(i) + " is touched";
    }
  }
  return {};
}

int test(int rung) {
  Report report;
  const auto add = [&](RungProblem p, const std::string& what, std::string (*how)(RungProblem&)) {
    const std::string name = name_of(rung, p) + what;
    report.add(name, how(p));
  };
  const std::string& source = rung_source(rung);
  for (const bool causal : {false, true}) {
    for (const std::size_t d : sizes({32, 64})) {
      for (const std::size_t n :
           sizes({1, 2, 3, 5, 8, 13, 15, 16, 17, 23, 30, 31, 32, 33, 34, 40, 63, 64, 65, 127, 128, 129, 160})) {
        add(rung_problem(source, n, d, causal), "", checked);
      }
    }
    for (const std::size_t d : sizes({1, 7, 33})) {  // the rungs take any D
      for (const std::size_t n : sizes({1, 15, 16, 17, 31, 32, 33, 65}))
        add(rung_problem(source, n, d, causal), "", checked);
    }
    for (const std::size_t n : sizes({1, 40, 65}))
      add(rung_problem(source, n, 32, causal), " compiled in", compiled_in);
    // Scores in the hundreds: exp underflows, and only the largest few weigh anything.
    add(rung_problem(source, 65, 32, causal, 8.0F), " large scores", checked);
    add(rung_problem(source, 65, 32, causal, 8.0F), " large scores, denormals flushed", flushed);
    RungProblem rising = rung_problem(source, 65, 32, causal);
    for (std::size_t j = 0; j < rising.n; ++j) {  // each key raises every maximum
      for (std::size_t d = 0; d < rising.d; ++d) {
        rising.q[j * rising.d + d] = 1.0F;
        rising.k[j * rising.d + d] = 0.125F * static_cast<float>(j);
      }
    }
    add(rising, " rising scores", checked);
    add(rung_problem(source, 40, 32, causal), " NaN at key 0", [](RungProblem& p) { return nan_at(p, 0); });
    add(rung_problem(source, 40, 32, causal), " NaN at key 20", [](RungProblem& p) { return nan_at(p, 20); });
    add(rung_problem(source, 40, 32, causal), " NaN at key 39", [](RungProblem& p) { return nan_at(p, 39); });
  }
  return report.finish();
}

}  // namespace
}  // namespace tilewise::metal_bench

int main(int argc, char** argv) {
  if (argc != 2 || (std::strcmp(argv[1], "1") != 0 && std::strcmp(argv[1], "2") != 0)) {
    std::fprintf(stderr, "usage: metal_conformance 1|2   (the rung)\n");
    return 2;
  }
  return tilewise::metal_bench::test(argv[1][0] - '0');
}
