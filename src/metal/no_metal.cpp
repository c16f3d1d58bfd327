// The Metal backend of a build without Metal: it exists and has no kernels.
#include "kernel/kernel.hpp"

namespace tilewise {
std::span<const Kernel> metal_kernels() { return {}; }
}  // namespace tilewise
