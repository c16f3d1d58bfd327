// The CUDA backend of a build without CUDA: it exists and has no kernels.
#include "kernel/kernel.hpp"

namespace tilewise {
std::span<const Kernel> cuda_kernels() { return {}; }
}  // namespace tilewise
