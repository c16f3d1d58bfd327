#pragma once

// The fuzzer's bytes as a sequence of small decisions. When they run out every decision is 0, which stands for the
// plain case, so that any input describes a whole problem and short inputs describe simple ones.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace tilewise::fuzz {

class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint8_t byte() { return at_ < bytes_.size() ? bytes_[at_++] : std::uint8_t{0}; }

  // In [0, n), n from 1 to 256.
  std::int64_t below(std::int64_t n) { return byte() % n; }
  // In [low, high], at most 256 values.
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  // About once in n inputs; never without bytes.
  bool one_in(std::int64_t n) { return below(n) == n - 1; }

  template <class T, std::size_t n>
  T pick(const std::array<T, n>& values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(n)))];
  }

  std::uint64_t word(int bytes) {
    std::uint64_t value = 0;
    for (int n = 0; n < bytes; ++n) value = value << 8 | byte();
    return value;
  }

  // Mostly small, also every extreme of int64, also anything.
  std::int64_t integer() {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
    constexpr std::array<std::int64_t, 10> extremes{most,      least,     most - 1,   least + 1, most / 2,
                                                    least / 2, 1LL << 31, -1LL << 31, 1LL << 32, -1LL << 32};
    switch (below(8)) {
      case 5: return static_cast<std::int16_t>(word(2));
      case 6: return pick(extremes);
      case 7: return static_cast<std::int64_t>(word(8));
      default: return static_cast<std::int8_t>(byte());
    }
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

}  // namespace tilewise::fuzz
