#pragma once

// What the tests of micro-kernels share: guarded buffers, and a fixture that goes through this machine's instruction
// sets.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cpu/micro_target.hpp"
#include "verify/random.hpp"

namespace tilewise::micro {

using verify::Random;

// A sum in double and the sum of its terms' magnitudes, which bounds what rounding may do to it.
struct ExactSum {
  double value = 0;
  double size = 0;
  void add(double term) {
    value += term;
    size += std::fabs(term);
  }
};

// 64-byte aligned, filled with NaN, with a line of canaries behind.
template <class T>
class Aligned {
 public:
  explicit Aligned(std::int64_t n) : n_(static_cast<std::size_t>(n)), storage_(n_ + 2 * line) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = storage_.data() + (64 - address % 64) % 64 / sizeof(T);
    for (std::size_t i = 0; i < n_; ++i) begin_[i] = std::numeric_limits<T>::quiet_NaN();
    for (std::size_t i = n_; i < n_ + line / 2; ++i) begin_[i] = canary;
  }
  ~Aligned() {
    for (std::size_t i = n_; i < n_ + line / 2; ++i) EXPECT_EQ(begin_[i], canary) << "written past the end";
  }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  T* data() { return begin_; }
  T& operator[](std::int64_t i) { return begin_[i]; }
  void fill(Random& random) {
    for (std::size_t i = 0; i < n_; ++i) begin_[i] = static_cast<T>(random.normal());
  }
  void fill(T value) {
    for (std::size_t i = 0; i < n_; ++i) begin_[i] = value;
  }

 private:
  static constexpr std::size_t line = 2 * 64 / sizeof(T);
  static constexpr T canary = T(-77);
  std::size_t n_;
  std::vector<T> storage_;
  T* begin_ = nullptr;
};

template <class T>
class Micro : public testing::Test {
 protected:
  // Calls body(target, functions) for every instruction set of this machine.
  template <class Body>
  void on_every_target(const Body& body) {
    ASSERT_FALSE(targets().empty());
    for (const Target* target : targets()) {
      SCOPED_TRACE(target->name);
      body(functions_of<T>(*target));
    }
  }
};

}  // namespace tilewise::micro
