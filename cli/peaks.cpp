#include "peaks.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#ifdef __linux__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "machine.hpp"

namespace tilewise::cli {
namespace {

// Each loop runs `rounds` rounds of independent chains x = x * b + c, which stay finite (b < 1), and returns a sum
// over them so that no compiler can drop them. b and c come from outside for the same reason. Chains: latency times
// throughput of the multiply-adds, and no more than the registers hold.
struct Loop {
  double (*run)(std::int64_t rounds, double b, double c);
  double flops_per_round;
};

constexpr int portable_chains = 32;

template <class T>
double portable_chain_loop(std::int64_t rounds, double b, double c) {
  std::array<T, portable_chains> x{};
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (T& value : x) value = value * static_cast<T>(b) + static_cast<T>(c);
  }
  return static_cast<double>(std::accumulate(x.begin(), x.end(), T{0}));
}

#if defined(__x86_64__)

constexpr int chains = 12;

__attribute__((target("avx512f"))) double avx512_f32(std::int64_t rounds, double b, double c) {
  const __m512 factor = _mm512_set1_ps(static_cast<float>(b));
  const __m512 term = _mm512_set1_ps(static_cast<float>(c));
  __m512 x[chains];
  for (__m512& value : x) value = _mm512_setzero_ps();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512& value : x) value = _mm512_fmadd_ps(value, factor, term);
  }
  double sum = 0;
  for (const __m512& value : x) sum += static_cast<double>(_mm512_cvtss_f32(value));
  return sum;
}

__attribute__((target("avx512f"))) double avx512_f64(std::int64_t rounds, double b, double c) {
  const __m512d factor = _mm512_set1_pd(b);
  const __m512d term = _mm512_set1_pd(c);
  __m512d x[chains];
  for (__m512d& value : x) value = _mm512_setzero_pd();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512d& value : x) value = _mm512_fmadd_pd(value, factor, term);
  }
  double sum = 0;
  for (const __m512d& value : x) sum += _mm512_cvtsd_f64(value);
  return sum;
}

__attribute__((target("avx2,fma"))) double avx2_f32(std::int64_t rounds, double b, double c) {
  const __m256 factor = _mm256_set1_ps(static_cast<float>(b));
  const __m256 term = _mm256_set1_ps(static_cast<float>(c));
  __m256 x[chains];
  for (__m256& value : x) value = _mm256_setzero_ps();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m256& value : x) value = _mm256_fmadd_ps(value, factor, term);
  }
  double sum = 0;
  for (const __m256& value : x) sum += static_cast<double>(_mm256_cvtss_f32(value));
  return sum;
}

__attribute__((target("avx2,fma"))) double avx2_f64(std::int64_t rounds, double b, double c) {
  const __m256d factor = _mm256_set1_pd(b);
  const __m256d term = _mm256_set1_pd(c);
  __m256d x[chains];
  for (__m256d& value : x) value = _mm256_setzero_pd();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m256d& value : x) value = _mm256_fmadd_pd(value, factor, term);
  }
  double sum = 0;
  for (const __m256d& value : x) sum += _mm256_cvtsd_f64(value);
  return sum;
}

Loop loop_f32() {
  if (__builtin_cpu_supports("avx512f")) return {avx512_f32, chains * 16 * 2};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {avx2_f32, chains * 8 * 2};
  return {portable_chain_loop<float>, portable_chains * 2};
}

Loop loop_f64() {
  if (__builtin_cpu_supports("avx512f")) return {avx512_f64, chains * 8 * 2};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {avx2_f64, chains * 4 * 2};
  return {portable_chain_loop<double>, portable_chains * 2};
}

#elif defined(__aarch64__)

constexpr int chains = 24;  // four pipes of latency 4, and 32 registers

double neon_f32(std::int64_t rounds, double b, double c) {
  const float32x4_t factor = vdupq_n_f32(static_cast<float>(b));
  const float32x4_t term = vdupq_n_f32(static_cast<float>(c));
  // vfmaq accumulates: x = term * factor + x stays finite over the rounds of one measurement.
  float32x4_t x[chains];
  for (float32x4_t& value : x) value = vdupq_n_f32(0);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (float32x4_t& value : x) value = vfmaq_f32(value, factor, term);
  }
  double sum = 0;
  for (const float32x4_t& value : x) sum += static_cast<double>(vaddvq_f32(value));
  return sum;
}

double neon_f64(std::int64_t rounds, double b, double c) {
  const float64x2_t factor = vdupq_n_f64(b);
  const float64x2_t term = vdupq_n_f64(c);
  float64x2_t x[chains];
  for (float64x2_t& value : x) value = vdupq_n_f64(0);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (float64x2_t& value : x) value = vfmaq_f64(value, factor, term);
  }
  double sum = 0;
  for (const float64x2_t& value : x) sum += vaddvq_f64(value);
  return sum;
}

Loop loop_f32() { return {neon_f32, chains * 4 * 2}; }
Loop loop_f64() { return {neon_f64, chains * 2 * 2}; }

#else

Loop loop_f32() { return {portable_chain_loop<float>, portable_chains * 2}; }
Loop loop_f64() { return {portable_chain_loop<double>, portable_chains * 2}; }

#endif

#if defined(__x86_64__) && defined(__linux__)

bool has_amx_bf16() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned bf16 = 1U << 22;
  constexpr unsigned tile = 1U << 24;
  if ((d & bf16) == 0 || (d & tile) == 0) return false;
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

// Four accumulators from two tiles of each operand, as a matrix product uses the unit.
__attribute__((target("amx-tile,amx-bf16"))) double amx_bf16(std::int64_t rounds, double, double) {
  struct alignas(64) Config {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::array<std::uint8_t, 14> reserved{};
    std::array<std::uint16_t, 16> bytes_per_row{};
    std::array<std::uint8_t, 16> rows{};
  } config;
  for (std::size_t tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = 16;
  }
  alignas(64) std::array<float, 256> result{};
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, result.data(), 64);
  _tile_loadd(5, result.data(), 64);
  _tile_loadd(6, result.data(), 64);
  _tile_loadd(7, result.data(), 64);
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, result.data(), 64);
  _tile_release();
  return static_cast<double>(result[0]);
}
constexpr double amx_flops_per_round = 4 * 16 * 16 * 32 * 2;

#endif

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

volatile double kept = 0;  // where results go so that they are computed

// Best of many spans, each shorter than the time slice that a busy machine gives away.
double gflops_of(Loop loop) {
  volatile double b = 0.5;
  volatile double c = 1.0;
  std::int64_t rounds = 1000;
  double best = 0;
  for (int repeat = 0; repeat < 60;) {
    const auto start = std::chrono::steady_clock::now();
    kept = kept + loop.run(rounds, b, c);
    const double time = seconds_since(start);
    if (time < 0.002) {
      rounds *= 2;
      continue;
    }
    best = std::max(best, loop.flops_per_round * static_cast<double>(rounds) / time * 1e-9);
    ++repeat;
  }
  return best;
}

std::uint64_t sum_of(const std::uint64_t* data, std::size_t count) {
  std::array<std::uint64_t, 32> sums{};
  for (std::size_t i = 0; i + sums.size() <= count; i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += data[i + lane];
  }
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

double read_rate(const std::vector<std::uint64_t>& block, std::size_t threads) {
  double best = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<std::uint64_t> sums(threads);
    const std::size_t part = block.size() / threads;
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < threads; ++i) {
      others.emplace_back([&, i] { sums[i] = sum_of(block.data() + i * part, part); });
    }
    sums[0] = sum_of(block.data(), part);
    for (std::thread& other : others) other.join();
    const double time = seconds_since(start);
    kept = kept + static_cast<double>(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}));
    best = std::max(best, static_cast<double>(part * threads * sizeof(std::uint64_t)) / time * 1e-9);
  }
  return best;
}

}  // namespace

Peaks measure_peaks() {
  Peaks peaks;
  peaks.fma_f32_gflops = gflops_of(loop_f32());
  peaks.fma_f64_gflops = gflops_of(loop_f64());
#if defined(__x86_64__) && defined(__linux__)
  if (has_amx_bf16()) peaks.amx_bf16_gflops = gflops_of({amx_bf16, amx_flops_per_round});
#endif
  constexpr double largest_block = 512.0 * 1024 * 1024;
  const double bytes = std::min(largest_block, physical_memory() / 8);
  const std::vector<std::uint64_t> block(static_cast<std::size_t>(bytes) / sizeof(std::uint64_t), 1);
  peaks.read_gb_s = read_rate(block, 1);
  if (std::thread::hardware_concurrency() > 1) peaks.read_gb_s_2_threads = read_rate(block, 2);
  return peaks;
}

nlohmann::ordered_json to_json(const Peaks& peaks) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  return {{"fma_f32_gflops", peaks.fma_f32_gflops},
          {"fma_f64_gflops", peaks.fma_f64_gflops},
          {"amx_bf16_gflops", or_null(peaks.amx_bf16_gflops)},
          {"read_gb_s", peaks.read_gb_s},
          {"read_gb_s_2_threads", or_null(peaks.read_gb_s_2_threads)}};
}

}  // namespace tilewise::cli
