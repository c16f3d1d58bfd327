// The public functions: check, choose, run.
#include "tilewise/attention.hpp"

#include "api/choose.hpp"
#include "api/execution.hpp"
#include "api/explain.hpp"
#include "api/validate.hpp"

namespace tilewise {
namespace {

void run_kernel(const Kernel& kernel, const api::Call& call, Execution execution, const Workspace& given) {
  const api::WorkspaceForCall workspace(given, kernel.workspace(call.problem, execution));
  execution.workspace = workspace.get();
  kernel.run(call.problem, call.buffers, execution);
}

}  // namespace

const char* version() { return TILEWISE_VERSION; }

void attention_forward(const ForwardTensors& tensors, const AttentionOptions& options,
                       const ExecutionOptions& execution) {
  const api::Call call = api::checked_forward(tensors, options, api::Addresses::required);
  const Execution checked = api::checked_execution(execution);
  run_kernel(api::choose(call.problem, execution.kernel), call, checked, execution.workspace);
}

void attention_backward(const BackwardTensors&, const AttentionOptions&, const ExecutionOptions&) {
  throw Unsupported("attention_backward is not built yet; this release computes the forward pass");
}

void attention_merge(const PartialResult&, const PartialResult&, TensorView, TensorView, const ExecutionOptions&) {
  throw Unsupported("attention_merge is not built yet; this release computes whole results only");
}

std::size_t workspace_size(const ForwardTensors& tensors, const AttentionOptions& options,
                           const ExecutionOptions& execution) {
  const api::Call call = api::checked_forward(tensors, options, api::Addresses::optional);
  return api::choose(call.problem, execution.kernel).workspace(call.problem, api::checked_execution(execution));
}

Explanation explain(const ForwardTensors& tensors, const AttentionOptions& options, const ExecutionOptions& execution) {
  const api::Call call = api::checked_forward(tensors, options, api::Addresses::optional);
  return api::explained(call, api::survey(call.problem, execution.kernel));
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::metal}) {
    for (const Kernel& kernel : api::kernels_for(kind)) names.emplace_back(kernel.name);
  }
  return names;
}

struct Plan::State {
  Problem problem;
  const Kernel* kernel;
  std::size_t workspace;
};

Plan::Plan(const ForwardTensors& tensors, const AttentionOptions& options, const ExecutionOptions& execution) {
  const api::Call call = api::checked_forward(tensors, options, api::Addresses::optional);
  const Kernel& kernel = api::choose(call.problem, execution.kernel);
  const std::size_t workspace = kernel.workspace(call.problem, api::checked_execution(execution));
  state_ = std::make_unique<State>(State{call.problem, &kernel, workspace});
}

Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

const char* Plan::kernel() const { return state_->kernel->name; }
std::size_t Plan::workspace_size() const { return state_->workspace; }

void Plan::run(const ForwardTensors& tensors, const AttentionOptions& options,
               const ExecutionOptions& execution) const {
  const api::Call call = api::checked_forward(tensors, options, api::Addresses::required);
  api::check_matches_plan(state_->problem, call.problem);
  run_kernel(*state_->kernel, call, api::checked_execution(execution), execution.workspace);
}

}  // namespace tilewise
