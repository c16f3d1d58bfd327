#include "api/execution.hpp"

#include <cstdint>
#include <new>

#include "api/describe.hpp"
#include "kernel/parallel.hpp"

namespace tilewise::api {
namespace {

constexpr std::align_val_t workspace_alignment{64};

}  // namespace

Execution checked_execution(const ExecutionOptions& options) {
  if (options.max_threads < 0) refuse("max_threads", std::to_string(options.max_threads) + ", expected 0 or more");
  if (options.parallel_for != nullptr && (options.parallel_for->run == nullptr || options.parallel_for->workers < 1)) {
    refuse("parallel_for", "has no run function or fewer than 1 worker");
  }
  Execution execution;
  execution.stream = options.stream;
  execution.parallel = options.parallel_for != nullptr ? options.parallel_for : default_pool(options.max_threads);
  return execution;
}

void WorkspaceForCall::Free::operator()(void* data) const { ::operator delete(data, workspace_alignment); }

WorkspaceForCall::WorkspaceForCall(const Workspace& given, std::size_t bytes) : workspace_(given) {
  if (given.data == nullptr) {
    if (bytes > 0) owned_.reset(::operator new(bytes, workspace_alignment));
    workspace_ = {owned_.get(), bytes};
    return;
  }
  if (reinterpret_cast<std::uintptr_t>(given.data) % static_cast<std::size_t>(workspace_alignment) != 0) {
    refuse("workspace", "is not aligned to 64 bytes");
  }
  if (given.bytes < bytes) {
    refuse("workspace", "has " + std::to_string(given.bytes) + " bytes, expected " + std::to_string(bytes));
  }
}

}  // namespace tilewise::api
