#pragma once

// The two founding rungs as launches, and float64 attention to hold them to.

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bench.hpp"
#include "check.hpp"

namespace tilewise::metal_bench {

constexpr std::uint32_t rung_threads = 32;  // queries per group, in both rungs

struct RungProblem {
  std::string source;
  std::size_t n = 0;
  std::size_t d = 0;
  bool causal = false;
  std::vector<float> q, k, v, o;  // [n, d]
};

inline RungProblem rung_problem(const std::string& source, std::size_t n, std::size_t d, bool causal,
                                float spread = 1) {
  RungProblem p{source, n, d, causal, {}, {}, {}, {}};
  std::mt19937 random(static_cast<std::uint32_t>(n * 1000 + d * 2 + (causal ? 1 : 0)));
  std::normal_distribution<float> normal(0, spread);
  for (std::vector<float>* x : {&p.q, &p.k, &p.v}) {
    x->resize(n * d);
    for (float& e : *x) e = normal(random);
  }
  p.o.resize(n * d);
  return p;
}

inline const std::string& rung_source(int rung) {
  static const std::string sources[] = {TW_SRC_DIR "/metal/kernels/attention.metal",
                                        TW_SRC_DIR "/metal/kernels/attention_tiled.metal"};
  return sources[rung - 1];
}

// With N as a runtime constant: one compilation serves all N.
inline Launch launch_of(RungProblem& p) {
  Launch launch;
  launch.source = p.source;
  launch.function = "attentionforward";
  launch.constants = {{"ATTENTION_D", std::to_string(p.d)}, {"ATTENTION_CAUSAL", p.causal ? "1" : "0"}};
  launch.runtime_constants = {{"ATTENTION_N", static_cast<std::int64_t>(p.n)}};
  launch.buffers = {buffer_of(0, "Q", p.q, Access::input), buffer_of(1, "K", p.k, Access::input),
                    buffer_of(2, "V", p.v, Access::input), buffer_of(3, "O", p.o, Access::output)};
  launch.groups = {(static_cast<std::uint32_t>(p.n) + rung_threads - 1) / rung_threads, 1, 1};
  launch.threads = {rung_threads, 1, 1};
  return launch;
}

// softmax(Q K^T / sqrt(D)) V from the definition, in T.
template <class T>
std::vector<T> attention_in(const RungProblem& p) {
  std::vector<T> o(p.n * p.d);
  const T scale = T(1) / std::sqrt(static_cast<T>(p.d));
  for (std::size_t i = 0; i < p.n; ++i) {
    const std::size_t keys = p.causal ? i + 1 : p.n;
    std::vector<T> weights(keys);
    T largest = -std::numeric_limits<T>::infinity(), sum = 0;
    for (std::size_t j = 0; j < keys; ++j) {
      for (std::size_t d = 0; d < p.d; ++d) {
        weights[j] += static_cast<T>(p.q[i * p.d + d]) * static_cast<T>(p.k[j * p.d + d]);
      }
      weights[j] *= scale;
      largest = std::max(largest, weights[j]);
    }
    for (T& w : weights) sum += w = std::exp(w - largest);
    for (std::size_t d = 0; d < p.d; ++d) {
      for (std::size_t j = 0; j < keys; ++j) o[i * p.d + d] += weights[j] / sum * static_cast<T>(p.v[j * p.d + d]);
    }
  }
  return o;
}

// The float32 rule of DESIGN section 2: at most twice the error of the naive formula plus eps / 4 in relative L2 (from
// 64 elements on) and plus eps * max |reference| in the maximum. Empty: kept.
inline std::string float32_rule(const RungProblem& p) {
  const std::vector<double> exact = attention_in<double>(p);
  const std::vector<float> naive = attention_in<float>(p);
  double norm = 0, ours_l2 = 0, naive_l2 = 0, ours_max = 0, naive_max = 0, largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double ours = std::fabs(static_cast<double>(p.o[i]) - exact[i]);
    const double theirs = std::fabs(static_cast<double>(naive[i]) - exact[i]);
    if (std::isnan(ours)) return "element " + std::to_string(i) + " is not a number or was never written";
    norm += exact[i] * exact[i];
    ours_l2 += ours * ours;
    naive_l2 += theirs * theirs;
    ours_max = std::max(ours_max, ours);
    naive_max = std::max(naive_max, theirs);
    largest = std::max(largest, std::fabs(exact[i]));
  }
  const double eps = std::numeric_limits<float>::epsilon();
  if (ours_max > 2 * naive_max + eps * largest) {
    return "largest error " + std::to_string(ours_max) + ", naive " + std::to_string(naive_max);
  }
  if (exact.size() >= 64 && std::sqrt(ours_l2) > 2 * std::sqrt(naive_l2) + eps / 4 * std::sqrt(norm)) {
    return "relative L2 error " + std::to_string(std::sqrt(ours_l2 / norm));
  }
  return {};
}

}  // namespace tilewise::metal_bench
