#pragma once

// Which kernel runs: the one list of backends, the choice by rank, and forcing by name.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel.hpp"
#include "tilewise/attention.hpp"

namespace tilewise::api {

// The kernels of the backend that a device belongs to.
std::span<const Kernel> kernels_for(DeviceKind kind);

// The kernel that `name` (a name or a prefix; empty: TILEWISE_KERNEL, and if that is empty too, any) selects for a
// problem. Throws std::invalid_argument when no kernel has such a name, Unsupported with every kernel's reason when all
// refuse.
const Kernel& choose(const Problem& problem, std::string_view name);

// The same without throwing Unsupported: kernels that could run, best first, and refusals with reasons.
struct Choice {
  std::vector<const Kernel*> ready;
  std::vector<Refusal> refused;
};
Choice survey(const Problem& problem, std::string_view name);

}  // namespace tilewise::api
