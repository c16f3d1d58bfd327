// Does the counter count right? The founding rungs' counts have closed forms.

#include <tuple>

#include "counting.hpp"
#include "rungs.hpp"

namespace tilewise::metal_bench {
namespace {

CountRow count_rung(int rung, std::size_t n, std::size_t d, bool causal) {
  RungProblem p = rung_problem(rung_source(rung), n, d, causal);
  return count_launch(rung == 1 ? "ladder.metal.untiled" : "ladder.metal.tiled", {n, d, causal}, launch_of(p));
}

std::string compare(std::initializer_list<std::tuple<const char*, std::uint64_t, std::uint64_t>> rows) {
  for (const auto& [name, got, want] : rows) {
    if (got != want) return std::string(name) + " is " + std::to_string(got) + ", not " + std::to_string(want);
  }
  return {};
}

// Per visible pair: D multiply-adds for the score, D for u and one for l; D multiplications of u by alpha and one by
// the scale; two exponentials with their subtractions; one maximum. Per row: D divisions. Per thread: 1 / sqrt(D).
std::string closed_form(int rung, std::size_t n, std::size_t d, bool causal) {
  const CountRow row = count_rung(rung, n, d, causal);
  const Counts& c = row.counts;
  const std::uint64_t pairs = row.problem.pairs();
  const std::uint64_t groups = (n + 31) / 32;
  const std::uint64_t threads = rung == 1 ? n : groups * 32;  // rung 1's extra threads leave at once
  std::uint64_t tiles = 0, keys_loaded = 0;
  for (std::uint64_t group = 0; group < groups; ++group) {
    const std::uint64_t end = causal ? std::min<std::uint64_t>(n, (group + 1) * 32) : n;
    for (std::uint64_t start = 0; start < end; start += 16) {
      ++tiles;
      keys_loaded += std::min<std::uint64_t>(16, n - start);
    }
  }
  const std::uint64_t row_bytes = 4 * d;
  const bool tiled = rung == 2;
  return compare({
      {"fma", c.fma, pairs * (2 * d + 1)},
      {"mul", c.mul, pairs * (d + 1)},
      {"add", c.add, pairs * 2},
      {"compare", c.compare, pairs},
      {"exponential", c.exponential, pairs * 2},
      {"divide", c.divide, n * d + threads},
      {"special", c.special, threads},
      {"device bytes read", c.device_bytes_read, row_bytes * (n + 2 * (tiled ? keys_loaded : pairs))},
      {"device bytes written", c.device_bytes_written, row_bytes * n},
      {"threadgroup bytes read", c.threadgroup_bytes_read, tiled ? 2 * row_bytes * pairs : 0},
      {"threadgroup bytes written", c.threadgroup_bytes_written, tiled ? 2 * row_bytes * 16 * tiles : 0},
      {"threadgroup barriers", c.threadgroup_barriers, tiled ? 2 * tiles : 0},
      {"threadgroup bytes", row.threadgroup_bytes, tiled ? 2 * row_bytes * 16 : 0},
      {"matrix products", c.matrix_products, 0},
      {"simdgroups", c.simdgroups, groups},
  });
}

// kernels/features.metal, matrix: two loads and two stores of 8x8, one product, 64 elements copied twice.
std::string matrix_counts() {
  std::vector<float> a(80), c(64), copy(160);
  const struct {
    std::int64_t rows;
    int columns;
    float scale;
  } shape{8, 10, 1.0F};
  Launch launch;
  launch.source = TW_BENCH_DIR "/kernels/features.metal";
  launch.function = "matrix_float";
  launch.threads = {32, 1, 1};
  std::vector<float> b = a;
  launch.buffers = {buffer_of(0, "a", a, Access::input), buffer_of(1, "b", b, Access::input),
                    buffer_of(2, "c", c, Access::output), buffer_of(4, "copy", copy, Access::output)};
  const auto* const bytes = reinterpret_cast<const std::byte*>(&shape);
  launch.scalars = {{3, {bytes, bytes + sizeof shape}}};
  const CountRow row = count_launch("matrix_float", {8, 8, false}, launch);
  const Counts& n = row.counts;
  return compare({
      {"products", n.matrix_products, 1},
      {"multiplications", n.mul, 64},
      {"device bytes read", n.device_bytes_read, 256 + 256},
      {"device bytes written", n.device_bytes_written, 256 + 256},
      {"threadgroup bytes read", n.threadgroup_bytes_read, 256 + 256},
      {"threadgroup bytes written", n.threadgroup_bytes_written, 256 + 256},
      {"simdgroup barriers", n.simdgroup_barriers, 2},
      // load a, staged store 2 + load 2, transposed load 2, store product, copy load 2 + store 2, transposed store 2
      {"memory instructions", n.memory_instructions, 14},
  });
}

int test() {
  Report report;
  for (int rung = 1; rung <= 2; ++rung) {
    for (const bool causal : {false, true}) {
      report.add("closed form of rung " + std::to_string(rung) + (causal ? ", causal" : ""),
                 closed_form(rung, 200, 64, causal));
      report.add("closed form of rung " + std::to_string(rung) + (causal ? ", causal, odd" : ", odd"),
                 closed_form(rung, 45, 7, causal));
    }
  }
  report.add("closed form of a matrix kernel", matrix_counts());
  return report.finish();
}

}  // namespace
}  // namespace tilewise::metal_bench

int main() { return tilewise::metal_bench::test(); }
