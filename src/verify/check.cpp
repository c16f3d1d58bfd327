#include "verify/check.hpp"

#include <memory>
#include <stdexcept>

#include "tilewise/attention.hpp"
#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

std::string backend_of(DeviceKind device) {
  switch (device) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
    case DeviceKind::metal: return "metal";
  }
  return {};
}

// Kernels of the device whose name begins with `wanted`; the ladder's rungs run on the CPU. An exact name beats its
// being a prefix of others.
std::vector<std::string> matching_kernels(DeviceKind device, std::string_view wanted) {
  std::vector<std::string> names;
  for (const std::string& name : kernel_names()) {
    const std::string backend = name.substr(0, name.find('.'));
    const bool here = backend == backend_of(device) || (device == DeviceKind::cpu && backend == "ladder");
    if (!here || !name.starts_with(wanted)) continue;
    if (name == wanted) return {name};
    names.push_back(name);
  }
  return names;
}

// A kernel behind the public API, forced by its name. Whoever else would run is an error, not a result.
Subject api_subject(const std::string& name, Device device) {
  const auto forced = [name](ExecutionOptions execution) {
    execution.kernel = name;
    return execution;
  };
  Subject subject;
  subject.name = name;
  subject.device = device;
  subject.refusal = [name, forced](const ForwardTensors& tensors, const AttentionOptions& options) -> std::string {
    const Explanation explanation = explain(tensors, options, forced({}));
    if (explanation.chosen == name) return {};
    for (const Refusal& refusal : explanation.refused) {
      if (refusal.kernel == name && explanation.chosen.empty()) return refusal.reason;
    }
    throw CaseFailed("forced " + name + ", but '" + explanation.chosen + "' was chosen");
  };
  subject.workspace = [forced](const ForwardTensors& tensors, const AttentionOptions& options,
                               const ExecutionOptions& execution) {
    return workspace_size(tensors, options, forced(execution));
  };
  subject.forward = [name, forced](const ForwardTensors& tensors, const AttentionOptions& options,
                                   const ExecutionOptions& execution) {
    const ExecutionOptions with_name = forced(execution);
    const Plan plan(tensors, options, with_name);
    if (plan.kernel() != name) throw CaseFailed("forced " + name + ", but " + plan.kernel() + " was planned");
    plan.run(tensors, options, with_name);
  };
  return subject;
}

}  // namespace

void run_checks(const CheckOptions& options, const std::function<void(const CheckResult&)>& report) {
  std::vector<Subject> subjects;
  for (const std::string& name : matching_kernels(options.device, options.kernel)) {
    subjects.push_back(api_subject(name, {options.device, 0}));
  }
  if (subjects.empty()) {
    throw std::invalid_argument("kernel: no kernel of the device " + backend_of(options.device) + " is named '" +
                                std::string(options.kernel) + "' or begins so");
  }
  for (const Case& one : all_cases()) {
    if (!options.family.empty() && one.family != options.family) continue;
    if ((options.quick && one.slow) || (options.dissimilar && one.similar)) continue;
    for (const DType dtype : one.dtypes) {
      References references;  // shared by the kernels: the oracle is the expensive part
      for (const Subject& subject : subjects) {
        const CaseOutcome outcome = run_case(one, dtype, subject, references);
        report({subject.name, one.family, one.name, dtype,
                outcome.passed    ? Outcome::passed
                : outcome.skipped ? Outcome::skipped
                                  : Outcome::failed,
                outcome.detail, outcome.max_error, outcome.rel_l2_error, outcome.budget_share});
      }
    }
  }
}

}  // namespace tilewise::verify
