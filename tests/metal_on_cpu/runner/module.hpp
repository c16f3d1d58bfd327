#pragma once

// From a .metal file and its constants to a loaded shared object.

#include <cstdint>
#include <string>
#include <vector>

#include "bench.hpp"
#include "tw/abi.h"

namespace tilewise::metal_bench {

// Translates and compiles (or finds in the cache, which is keyed by the content of everything that goes in). A breach
// of the MSL subset or a compile error is appended to `findings` and gives an empty path.
std::string build_module(const Launch& launch, Mode mode, std::vector<Finding>& findings);

class Module {
 public:
  Module(const std::string& path, const Launch& launch);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  [[nodiscard]] const TwEntry* find(const std::string& function) const;  // null: no such kernel
  [[nodiscard]] TwCounts* counts() const { return counts_; }             // null unless counting
  [[nodiscard]] std::uintptr_t base() const { return base_; }
  [[nodiscard]] bool contains(std::uintptr_t address) const { return address >= base_ && address < end_; }
  // "file:line" of the kernel's own line for each return address.
  [[nodiscard]] std::vector<std::string> lines_of(const std::vector<std::uintptr_t>& return_addresses) const;

 private:
  std::string path_;
  void* handle_ = nullptr;
  TwCounts* counts_ = nullptr;
  std::uintptr_t base_ = 0;
  std::uintptr_t end_ = 0;
};

}  // namespace tilewise::metal_bench
