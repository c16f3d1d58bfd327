// The CPU's kernels, in one list: the specification first, then what is faster, then the rungs of the ladder.
#include <vector>

#include "cpu/ladder_kernels.hpp"
#include "cpu/scalar_forward.hpp"
#include "cpu/simd_kernels.hpp"
#include "kernel/kernel.hpp"

namespace tilewise {

std::span<const Kernel> cpu_kernels() {
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> list{cpu::scalar_forward};
    for (const Kernel& kernel : cpu::simd_kernels()) list.push_back(kernel);
    for (const Kernel& rung : cpu::ladder_kernels()) list.push_back(rung);
    return list;
  }();
  return kernels;
}

}  // namespace tilewise
