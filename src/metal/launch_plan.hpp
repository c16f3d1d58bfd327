#pragma once

// A launch as plain data: what a Metal host (metal-cpp, torch's mps runtime, the Linux bench) needs to run a kernel.
// Checking, choosing and dispatch arithmetic happen once, in plans.cpp; executing a plan decides nothing.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernel/kernel.hpp"

namespace tilewise::metal {

// What Problem::machine.features holds for a Metal device.
struct Gpu {
  std::uint32_t family = 9;  // Apple GPU family: 7 is M1, 8 is M2, 9 is M3 and M4, 10 is M5
  std::uint32_t cores = 10;
};
constexpr std::uint32_t features_of(Gpu gpu) { return gpu.family | gpu.cores << 8; }
constexpr Gpu gpu_of(std::uint32_t features) { return {features & 0xff, features >> 8}; }

// Limits of every Apple GPU from family 7 on.
inline constexpr std::size_t max_threadgroup_bytes = 32768;
inline constexpr std::uint32_t max_threads = 1024;
inline constexpr std::uint32_t simd_width = 32;
inline constexpr std::size_t max_scalar_bytes = 4096;  // setBytes

// Which tensor of the call a buffer is. `none`: the kernel does not touch it, but something must be bound there.
enum class Role : std::uint8_t {
  none,
  q,
  k,
  v,
  o,
  lse,
  mask,
  bias,
  alibi_slopes,
  sinks,
  q_lengths,
  kv_lengths,
  cu_q,
  cu_k,
  block_table,
  scratch
};

struct BoundBuffer {
  int index = 0;  // [[buffer(index)]]
  Role role = Role::none;
  bool is_written = false;
  // Bytes that the kernel may touch, relative to the tensor's element 0 (to the workspace's start for scratch): begin
  // is negative when a stride is. The kernel's pointer is element 0 (scratch: begin).
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct KernelLaunch {
  const char* source = "";    // file in src/metal/kernels, flattened by flatten.py at build time
  const char* function = "";  // in it
  // Lines `#define name value` before the source. Compile with math mode "safe": NaN and infinities are part of the
  // contract.
  std::vector<std::pair<std::string, std::string>> constants;
  std::vector<BoundBuffer> buffers;
  int scalars_index = 0;
  std::vector<std::byte> scalars;          // setBytes
  std::array<std::uint32_t, 3> groups{};   // threadgroups of the grid
  std::array<std::uint32_t, 3> threads{};  // threads of a threadgroup
  std::size_t threadgroup_bytes = 0;       // what the kernel declares statically
};

// Launches in order; each sees what those before it wrote. Empty: nothing to compute.
struct LaunchPlan {
  std::vector<KernelLaunch> launches;
  std::size_t scratch_bytes = 0;  // of Role::scratch
};

// A kernel of this backend before there is a device: everything but running.
struct PlannedKernel {
  const char* name;
  Verdict (*supports)(const Problem&);
  int (*rank)(const Problem&);
  TileShape (*tile)(const Problem&);
  LaunchPlan (*plan)(const Problem&);  // throws std::logic_error unless supports(problem)
};
std::span<const PlannedKernel> planned_kernels();

// Whether every launch of a plan stays inside the limits above; the reason in words if not.
Verdict fits(const LaunchPlan& plan);

}  // namespace tilewise::metal
