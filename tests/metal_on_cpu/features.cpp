// Does the bench's metal_stdlib do what MSL says? Each kernel of kernels/features.metal against answers computed here.

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "check.hpp"

namespace tilewise::metal_bench {
namespace {

Launch launch_of(const std::string& function) {
  Launch launch;
  launch.source = TW_BENCH_DIR "/kernels/features.metal";
  launch.function = function;
  launch.threads = {32, 1, 1};
  return launch;
}

std::string differs(const std::vector<float>& got, const std::vector<float>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const float tolerance = 1e-6F * std::max(1.0F, std::fabs(want[i]));
    if (!(std::fabs(got[i] - want[i]) <= tolerance)) {
      return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " + std::to_string(want[i]);
    }
  }
  return {};
}

std::uint16_t bfloat_bits(float x) {
  std::uint32_t u = 0;
  std::memcpy(&u, &x, sizeof u);
  return static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U);
}
float bfloat_value(std::uint16_t bits) {
  const std::uint32_t u = std::uint32_t{bits} << 16U;
  float x = 0;
  std::memcpy(&x, &u, sizeof x);
  return x;
}

// Values that every type holds exactly.
template <class T>
std::string matrix(Mode mode, const std::string& function, const std::function<T(float)>& from) {
  constexpr int columns = 10;
  std::vector<T> a(8 * columns), b(8 * columns), copy(16 * 10);
  std::vector<float> va(a.size()), vb(b.size()), c(64), want(64);
  for (std::size_t i = 0; i < a.size(); ++i) {
    va[i] = static_cast<float>(static_cast<int>(i * 7 % 13) - 6);
    vb[i] = static_cast<float>(static_cast<int>(i * 5 % 11) - 5);
    a[i] = from(va[i]);
    b[i] = from(vb[i]);
  }
  struct Shape {
    std::int64_t rows;
    int columns;
    float scale;
  } shape{8, columns, 0.5F};
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      for (std::size_t k = 0; k < 8; ++k) want[i * 8 + j] += shape.scale * va[i * columns + k] * vb[j * columns + k];
    }
  }
  Launch launch = launch_of(function);
  launch.buffers = {buffer_of(0, "a", a, Access::input), buffer_of(1, "b", b, Access::input),
                    buffer_of(2, "c", c, Access::output), buffer_of(4, "copy", copy, Access::output)};
  const auto* const bytes = reinterpret_cast<const std::byte*>(&shape);
  launch.scalars = {{3, {bytes, bytes + sizeof shape}}};
  if (std::string why = run_in_all_schedules(launch, mode); !why.empty()) return why;
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      if (std::memcmp(&copy[(j + 1) * 16 + 8 + i], &a[i * columns + j], sizeof(T)) != 0) return "transposed store";
    }
  }
  return differs(c, want);
}

std::string layout(Mode mode) {
  std::vector<float> a(64), out(128), want(128);
  for (std::size_t i = 0; i < 64; ++i) {
    a[i] = want[i] = static_cast<float>(i);
    want[64 + i] = 3.0F * a[i];
  }
  Launch launch = launch_of("layout");
  launch.buffers = {buffer_of(0, "a", a, Access::input), buffer_of(1, "out", out, Access::output)};
  if (std::string why = run_in_all_schedules(launch, mode); !why.empty()) return why;
  return differs(out, want);
}

std::string simd(Mode mode) {
  std::vector<float> x(64), out(64 * 16), want(64 * 16);
  for (std::size_t i = 0; i < 64; ++i) x[i] = static_cast<float>(static_cast<int>(i * 37 % 64) - 20);
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t lane = i % 32;
    const float* const group = x.data() + (i - lane);
    float* const row = want.data() + i * 16;
    row[1] = -1e9F;
    row[2] = 1e9F;
    for (std::size_t j = 0; j < 32; ++j) {
      row[0] += group[j];
      row[1] = std::max(row[1], group[j]);
      row[2] = std::min(row[2], group[j]);
    }
    row[3] = group[lane ^ 5U];
    row[4] = lane >= 3 ? group[lane - 3] : group[lane];
    row[5] = lane + 2 < 32 ? group[lane + 2] : group[lane];
    row[6] = group[7];
    row[7] = group[(lane + 1) % 32];
    row[8] = 1;
    row[9] = 1;
    row[10] = 0;
    row[11] = static_cast<float>(0x55555555U);
    row[12] = 496;
    row[13] = static_cast<float>(i / 32);
    row[14] = -group[lane ^ 1U];
    row[15] = lane == 0 ? 1.0F : 0.0F;
  }
  Launch launch = launch_of("simd");
  launch.threads = {64, 1, 1};
  launch.buffers = {buffer_of(0, "x", x, Access::input), buffer_of(1, "out", out, Access::output)};
  if (std::string why = run_in_all_schedules(launch, mode); !why.empty()) return why;
  return differs(out, want);
}

std::string types(Mode mode) {
  std::vector<float> x{1.5F, -2.0F, 3.0F, 0.25F, 0.1F, 1.00390625F, 17.0F, 3.0F}, out(20);
  // v = (1.5, -2, 3, .25) -> v.xy = (w, z) = (.25, 3); += 2 * (3, .25, 0, 1)
  const float v[4] = {0.25F + 6.0F, 3.0F + 0.5F, 3.0F, 0.25F + 2.0F};
  const std::vector<float> want{v[0],
                                v[1],
                                v[2],
                                v[3],
                                2 * v[0] * v[3] + 2 * v[1] * v[2],
                                static_cast<float>(static_cast<_Float16>(0.1F)),
                                bfloat_value(bfloat_bits(0.1F)),
                                bfloat_value(bfloat_bits(1.00390625F)),
                                -1.5F,
                                2.0F,
                                1.0F,
                                0.25F,
                                2.0F,
                                0.0F,
                                13.0F,
                                8.0F,
                                v[0] + v[3],
                                v[2],
                                11.0F,
                                1.0F};
  Launch launch = launch_of("types");
  launch.buffers = {buffer_of(0, "x", x, Access::input), buffer_of(1, "out", out, Access::output)};
  if (std::string why = run_in_all_schedules(launch, mode); !why.empty()) return why;
  return differs(out, want);
}

// A grid of whole groups, and one whose last groups are partial along both axes (dispatchThreads).
std::string positions(Mode mode, Size3 grid) {
  const Size3 threads{16, 4, 1};
  const std::size_t total = std::size_t{grid.x} * grid.y * grid.z;
  std::vector<std::uint32_t> out(total * 4);
  Launch launch = launch_of("positions");
  launch.threads = threads;
  launch.grid_threads = grid;
  launch.groups = {(grid.x + 15) / 16, (grid.y + 3) / 4, grid.z};
  launch.buffers = {buffer_of(0, "out", out, Access::output)};
  if (std::string why = run_in_all_schedules(launch, mode); !why.empty()) return why;
  for (std::uint32_t z = 0; z < grid.z; ++z) {
    for (std::uint32_t y = 0; y < grid.y; ++y) {
      for (std::uint32_t x = 0; x < grid.x; ++x) {
        const std::uint32_t gx = x / 16, gy = y / 4;
        const std::uint32_t width = std::min(16U, grid.x - gx * 16), height = std::min(4U, grid.y - gy * 4);
        const std::uint32_t sum = height * (width * gx * 16 + width * (width - 1) / 2);
        const std::uint32_t* const got = &out[((std::size_t{z} * grid.y + y) * grid.x + x) * 4];
        const std::uint32_t inside = y % 4 * width + x % 16;
        if (got[0] != sum || got[1] != (z * launch.groups.y + gy) * launch.groups.x + gx || got[2] != inside ||
            got[3] != inside) {
          return "thread " + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z);
        }
      }
    }
  }
  return {};
}

template <class T>
Scalars scalar_of(int index, const T& value) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  return {index, {bytes, bytes + sizeof value}};
}

// 32 elements, 1 GiB apart, in sparse buffers of 32 GiB: a 32-bit index reaches none of them right.
std::string far(Mode mode) {
  constexpr std::int64_t stride = std::int64_t{1} << 28;
  std::vector<float> in(32), out(32, 0.0F), want(32);
  Buffer from{0, "in", nullptr, 0, Access::input, 0, {}}, to{1, "out", nullptr, 0, Access::output, 0, {}};
  for (std::size_t i = 0; i < 32; ++i) {
    in[i] = static_cast<float>(i + 1);
    want[i] = 2 * in[i];
    from.pieces.push_back({i * static_cast<std::size_t>(stride) * 4, &in[i], 4});
    to.pieces.push_back({i * static_cast<std::size_t>(stride) * 4, &out[i], 4});
  }
  from.bytes = to.bytes = 31 * static_cast<std::size_t>(stride) * 4 + 4;
  Launch launch = launch_of("far");
  launch.buffers = {from, to};
  launch.scalars = {scalar_of(2, 16 * stride), scalar_of(3, stride)};
  if (const Result result = run(launch, {}, mode); !result.findings.empty()) return text_of(result.findings);
  if (std::string why = differs(out, want); !why.empty()) return why;
  launch.buffers[0].pieces.pop_back();
  launch.buffers[0].bytes -= 16;  // a whole guard granule, so that every mode can see it
  const Result result = run(launch, {}, mode);
  return result.findings.empty() || result.findings[0].kind != "bounds" ? "the sparse buffer's end is open" : "";
}

std::string denormal(Mode mode) {
  const float tiny = std::numeric_limits<float>::min();
  std::vector<float> in(32, tiny), out(32);
  Launch launch = launch_of("denormal");
  launch.buffers = {buffer_of(0, "in", in, Access::input), buffer_of(1, "out", out, Access::output)};
  Schedule schedule;
  if (const Result result = run(launch, schedule, mode); !result.findings.empty()) return text_of(result.findings);
  if (!(out[3] > 0)) return "a denormal is flushed";
  schedule.flush_denormals = true;
  if (const Result result = run(launch, schedule, mode); !result.findings.empty()) return text_of(result.findings);
  if (out[3] != 0.0F) return "a denormal is not flushed";
  volatile float half_of = tiny;
  half_of = half_of * 0.5F;
  return half_of > 0 ? "" : "the caller's rounding mode is not restored";
}

int test() {
  Report report;
  for (const Mode mode : {Mode::plain, Mode::checked, Mode::counted}) {
    const std::string in = " in mode " + std::to_string(static_cast<int>(mode));
    report.add("matrix float" + in, matrix<float>(mode, "matrix_float", [](float x) { return x; }));
    report.add("matrix half" + in,
               matrix<_Float16>(mode, "matrix_half", [](float x) { return static_cast<_Float16>(x); }));
    report.add("matrix bfloat" + in, matrix<std::uint16_t>(mode, "matrix_bfloat", bfloat_bits));
    report.add("layout" + in, layout(mode));
    report.add("simd" + in, simd(mode));
    report.add("types" + in, types(mode));
    report.add("whole groups" + in, positions(mode, {32, 8, 2}));
    report.add("far elements" + in, far(mode));
    report.add("denormals" + in, denormal(mode));
    report.add("partial groups" + in, positions(mode, {37, 6, 3}));
  }
  report.add("lint", text_of(lint(launch_of("types"))));
  return report.finish();
}

}  // namespace
}  // namespace tilewise::metal_bench

int main() { return tilewise::metal_bench::test(); }
