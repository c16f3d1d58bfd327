#include "bench.hpp"

#include <cstring>
#include <memory>

#include "executor.hpp"
#include "float_mode.hpp"
#include "memory.hpp"
#include "module.hpp"

namespace tilewise::metal_bench {

void install_fault_handler();

namespace {

constexpr std::size_t max_arguments = 31;

// What is wrong with the launch before any thread runs.
void check_launch(const Launch& launch, const TwEntry& entry, std::vector<Finding>& findings) {
  const Size3 t = launch.threads;
  if (std::uint64_t{t.x} * t.y * t.z > max_threads || t.x * t.y * t.z == 0) {
    findings.push_back({"limits", std::to_string(std::uint64_t{t.x} * t.y * t.z) + " threads in a group; 1 to " +
                                      std::to_string(max_threads) + " are possible"});
  }
  std::vector<int> bound(max_arguments, 0);
  const auto bind = [&](int index, const std::string& what) {
    if (index < 0 || index >= static_cast<int>(max_arguments)) {
      findings.push_back({"argument", what + " is bound to index " + std::to_string(index)});
    } else if (++bound[static_cast<std::size_t>(index)] > 1) {
      findings.push_back({"argument", "index " + std::to_string(index) + " is bound twice"});
    }
  };
  for (const Buffer& buffer : launch.buffers) {
    bind(buffer.index, "buffer " + buffer.role);
    for (const Piece& piece : buffer.pieces) {
      if (piece.offset > buffer.bytes || piece.bytes > buffer.bytes - piece.offset) {
        findings.push_back({"argument", "a piece of buffer " + buffer.role + " lies outside it"});
      }
    }
  }
  for (const Scalars& scalars : launch.scalars) {
    bind(scalars.index, "a block of scalars");
    if (scalars.bytes.size() > 4096) findings.push_back({"limits", "setBytes takes at most 4096 bytes"});
  }
  for (int i = 0; i < entry.argument_count; ++i) {
    const TwArgument& argument = entry.arguments[i];
    if (bound[static_cast<std::size_t>(argument.index)] == 0) {
      findings.push_back({"argument", "the kernel's argument " + std::string(argument.name) + ", buffer(" +
                                          std::to_string(argument.index) + "), is not bound"});
    }
  }
}

Region make_region(const Buffer& buffer) {
  Region region;
  region.name = buffer.role;
  region.bytes = buffer.bytes;
  region.memory = std::make_unique<GuardedMemory>(buffer.bytes);
  std::byte* const data = region.memory->data();
  region.begin = reinterpret_cast<std::uintptr_t>(data);
  region.writable = buffer.access != Access::input;
  const bool has_content = buffer.access == Access::input || buffer.access == Access::in_out;
  if (!buffer.pieces.empty()) {
    for (const Piece& piece : buffer.pieces) std::memcpy(data + piece.offset, piece.data, piece.bytes);
  } else if (has_content && buffer.bytes > 0) {
    std::memcpy(data, buffer.data, buffer.bytes);
  } else {
    std::memset(data, 0xff, buffer.bytes);
  }
  return region;
}

}  // namespace

Result run(const Launch& launch, Schedule schedule, Mode mode) {
  install_fault_handler();
  const DefaultFloatMode mode_of_the_gpu;
  Result result;
  const std::string path = build_module(launch, mode, result.findings);
  if (path.empty()) return result;
  const Module module(path, launch);
  const TwEntry* const entry = module.find(launch.function);
  if (entry == nullptr) {
    result.findings.push_back({"argument", launch.source + " has no kernel " + launch.function});
    return result;
  }
  check_launch(launch, *entry, result.findings);
  if (!result.findings.empty()) return result;

  std::vector<Region> device;
  std::vector<void*> arguments(max_arguments, nullptr);
  for (const Buffer& buffer : launch.buffers) {
    Region region = make_region(buffer);
    arguments[static_cast<std::size_t>(buffer.index)] = region.memory->data() + buffer.offset;
    if (region.writable && mode == Mode::checked && buffer.pieces.empty()) {
      region.cells.resize(buffer.bytes);
      if (buffer.access == Access::in_out) {
        for (Cell& cell : region.cells) cell.initialised = 1;
      }
    }
    device.push_back(std::move(region));
  }
  for (const Scalars& scalars : launch.scalars) {
    Buffer buffer{scalars.index,        "scalars",     const_cast<std::byte*>(scalars.bytes.data()),
                  scalars.bytes.size(), Access::input, 0};
    Region region = make_region(buffer);
    region.is_constant = true;
    arguments[static_cast<std::size_t>(scalars.index)] = region.memory->data();
    device.push_back(std::move(region));
  }

  Executor executor(launch, schedule, mode, module, *entry, device, arguments);
  executor.run();
  result.findings = executor.findings();
  result.threadgroup_bytes = executor.threadgroup_bytes();
  if (result.threadgroup_bytes > max_threadgroup_bytes) {
    result.findings.push_back({"limits", std::to_string(result.threadgroup_bytes) + " bytes of threadgroup memory; " +
                                             std::to_string(max_threadgroup_bytes) + " are possible"});
  }
  result.counts = executor.counts();
  if (mode == Mode::counted) {
    const TwCounts& scalar = *module.counts();
    result.counts.fma = scalar.fma;
    result.counts.mul = scalar.mul;
    result.counts.add = scalar.add;
    result.counts.compare = scalar.compare;
    result.counts.divide = scalar.divide;
    result.counts.exponential = scalar.exponential;
    result.counts.special = scalar.special;
  }
  for (std::size_t i = 0; i < launch.buffers.size(); ++i) {
    const Buffer& buffer = launch.buffers[i];
    if (buffer.access == Access::input || buffer.access == Access::scratch) continue;
    const std::byte* const data = device[i].memory->data();
    for (const Piece& piece : buffer.pieces) std::memcpy(piece.data, data + piece.offset, piece.bytes);
    if (buffer.pieces.empty() && buffer.bytes > 0) std::memcpy(buffer.data, data, buffer.bytes);
  }
  return result;
}

}  // namespace tilewise::metal_bench
