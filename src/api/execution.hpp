#pragma once

// From ExecutionOptions to what a kernel runs with: threads and workspace.

#include <cstddef>
#include <memory>

#include "kernel/kernel.hpp"
#include "tilewise/types.hpp"

namespace tilewise::api {

// Stream and threads, checked; no workspace yet.
Execution checked_execution(const ExecutionOptions& options);

// The caller's workspace, checked, or one allocated for this call.
class WorkspaceForCall {
 public:
  WorkspaceForCall(const Workspace& given, std::size_t bytes);
  [[nodiscard]] Workspace get() const { return workspace_; }

 private:
  struct Free {
    void operator()(void* data) const;
  };
  std::unique_ptr<void, Free> owned_;
  Workspace workspace_;
};

}  // namespace tilewise::api
