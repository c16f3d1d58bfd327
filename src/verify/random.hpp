#pragma once

// Deterministic inputs: the same values on every machine and library (std::normal_distribution differs between them).

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <string_view>

namespace tilewise::verify {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea and Flood 2014).
  std::uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n)); }

  double normal() {  // Box-Muller
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  std::uint64_t state_;
  double spare_ = 0;
  bool has_spare_ = false;
};

// FNV-1a: a case's seed is its name.
inline std::uint64_t seed_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

// NumPy's legacy uniform [0, 1), which the ONNX node tests draw their inputs from.
class NumpyUniform {
 public:
  explicit NumpyUniform(std::uint32_t seed) : engine_(seed) {}
  double operator()() {
    const double a = static_cast<double>(engine_() >> 5);
    const double b = static_cast<double>(engine_() >> 6);
    return (a * 67108864.0 + b) / 9007199254740992.0;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace tilewise::verify
