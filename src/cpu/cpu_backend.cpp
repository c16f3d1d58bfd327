// The CPU's kernels, in one list.
#include <array>

#include "cpu/scalar_forward.hpp"
#include "kernel/kernel.hpp"

namespace tilewise {

std::span<const Kernel> cpu_kernels() {
  static const std::array kernels{
      cpu::scalar_forward,
  };
  return kernels;
}

}  // namespace tilewise
