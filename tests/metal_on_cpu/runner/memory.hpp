#pragma once

// Device and threadgroup memory of one launch, with a shadow that knows who touched each byte since which barrier.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench.hpp"

namespace tilewise::metal_bench {

// One access. `sub` counts the simdgroup barriers of the thread's simdgroup. epoch 0: never.
struct Touch {
  std::uint32_t thread = 0;  // group * threads per group + index; collective_bit for a matrix operation
  std::uint32_t epoch = 0;   // counts the threadgroup barriers that order this memory; starts anew in each group
  std::uint32_t sub = 0;
  std::uint32_t site = 0;  // code address, relative to the module
};
constexpr std::uint32_t collective_bit = 0x80000000U;

struct Cell {
  Touch write;
  std::array<Touch, 3> reads;     // the last two readers, and the last one from another simdgroup
  std::uint32_t initialised = 0;  // threadgroup memory: serial of the group that wrote it; device: 1
};

// Memory between unmapped pages. Its end, rounded up to 16 bytes, lies at the end of a page.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  void* map_ = nullptr;
  std::size_t map_bytes_ = 0;
  std::byte* data_ = nullptr;
};

struct Region {
  std::string name;
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool writable = false;
  bool is_constant = false;  // scalars: setBytes
  std::unique_ptr<GuardedMemory> memory;
  std::vector<Cell> cells;  // empty for memory that is only read

  [[nodiscard]] bool contains(std::uintptr_t address, std::size_t size) const {
    return address >= begin && address - begin <= bytes && size <= bytes - (address - begin);
  }
};

// The arrays of one threadgroup, reserved in the order in which the kernel asks, with red zones between them.
class ThreadgroupMemory {
 public:
  ThreadgroupMemory();
  // nullptr when the arrays together exceed the arena (far above the limit that is checked).
  void* reserve(int id, std::size_t bytes, const char* name);
  void poison();  // all bytes 0xff: NaN as float, half and bfloat
  [[nodiscard]] bool near(std::uintptr_t address) const { return address - base_ < arena_bytes; }
  [[nodiscard]] Region* find(std::uintptr_t address, std::size_t size);
  // "threadgroup array k_tile, 4 bytes past its end" for an address between arrays.
  [[nodiscard]] std::string describe(std::uintptr_t address) const;
  [[nodiscard]] std::size_t declared_bytes() const { return declared_; }

 private:
  static constexpr std::size_t arena_bytes = std::size_t{1} << 20;
  static constexpr std::size_t red_zone = 1024;
  GuardedMemory memory_;
  std::uintptr_t base_;
  std::size_t used_ = red_zone;
  std::size_t declared_ = 0;
  std::vector<int> ids_;
  std::vector<Region> arrays_;
};

}  // namespace tilewise::metal_bench
