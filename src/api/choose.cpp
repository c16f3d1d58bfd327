#include "api/choose.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "api/describe.hpp"

namespace tilewise::api {
namespace {

struct Backend {
  DeviceKind kind;
  std::span<const Kernel> (*kernels)();
};

constexpr std::array backends{
    Backend{DeviceKind::cpu, cpu_kernels},
    Backend{DeviceKind::cuda, cuda_kernels},
    Backend{DeviceKind::metal, metal_kernels},
};

// What a forced name stands for: the kernel of exactly that name if there is one, else all that begin with it.
struct Wanted {
  std::string_view name;
  bool whole = false;

  [[nodiscard]] bool forced() const { return !name.empty(); }
  [[nodiscard]] bool matches(const Kernel& kernel) const {
    const std::string_view full = kernel.name;
    return whole ? full == name : full.starts_with(name);
  }
};

// The option wins over the environment. Throws std::invalid_argument when no kernel of the device matches.
Wanted wanted_kernels(std::span<const Kernel> kernels, std::string_view option) {
  const char* variable = std::getenv("TILEWISE_KERNEL");
  Wanted wanted{option};
  if (option.empty() && variable != nullptr) wanted.name = variable;
  wanted.whole =
      std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& kernel) { return kernel.name == wanted.name; });
  if (!wanted.forced() ||
      std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& kernel) { return wanted.matches(kernel); })) {
    return wanted;
  }
  std::string known;
  for (const Kernel& kernel : kernels) known += (known.empty() ? "" : ", ") + std::string(kernel.name);
  refuse("kernel", "no kernel of this device is named '" + std::string(wanted.name) +
                       "' or starts so; there are: " + (known.empty() ? "none (the backend is not built)" : known));
}

// A kernel of negative rank runs only when it is forced.
bool eligible(const Kernel& kernel, const Problem& problem, const Wanted& wanted) {
  return wanted.matches(kernel) && (wanted.forced() || kernel.rank(problem) >= 0);
}

[[noreturn]] void throw_unsupported(const Problem& problem, std::string_view name) {
  const Choice choice = survey(problem, name);
  std::string text = "no kernel supports this problem";
  if (choice.refused.empty()) text += ": this build has no kernels for the tensors' device";
  for (const Refusal& refusal : choice.refused) text += "; " + refusal.kernel + ": " + refusal.reason;
  throw Unsupported(text);
}

}  // namespace

std::span<const Kernel> kernels_for(DeviceKind kind) {
  for (const Backend& backend : backends) {
    if (backend.kind == kind) return backend.kernels();
  }
  return {};
}

const Kernel& choose(const Problem& problem, std::string_view name) {
  const std::span<const Kernel> kernels = kernels_for(problem.machine.kind);
  const Wanted wanted = wanted_kernels(kernels, name);
  const Kernel* best = nullptr;
  for (const Kernel& kernel : kernels) {
    if (!eligible(kernel, problem, wanted) || !kernel.supports(problem)) continue;
    if (best == nullptr || kernel.rank(problem) > best->rank(problem)) best = &kernel;
  }
  if (best == nullptr) throw_unsupported(problem, name);
  return *best;
}

Choice survey(const Problem& problem, std::string_view name) {
  const std::span<const Kernel> kernels = kernels_for(problem.machine.kind);
  const Wanted wanted = wanted_kernels(kernels, name);
  Choice choice;
  for (const Kernel& kernel : kernels) {
    const Verdict verdict = kernel.supports(problem);
    if (!wanted.matches(kernel)) {
      choice.refused.push_back({kernel.name, "another kernel is forced: '" + std::string(wanted.name) + "'"});
    } else if (!verdict) {
      choice.refused.push_back({kernel.name, verdict.reason});
    } else if (!eligible(kernel, problem, wanted)) {
      choice.refused.push_back({kernel.name, "it runs only when it is forced by name"});
    } else {
      choice.ready.push_back(&kernel);
    }
  }
  std::stable_sort(choice.ready.begin(), choice.ready.end(),
                   [&](const Kernel* a, const Kernel* b) { return a->rank(problem) > b->rank(problem); });
  return choice;
}

}  // namespace tilewise::api
