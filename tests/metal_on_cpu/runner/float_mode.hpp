#pragma once

#include <cfenv>

namespace tilewise::metal_bench {

// While it lives the thread rounds to nearest and flushes nothing. A GPU knows nothing of the modes of the caller's
// thread, and a host that fills in the scalars of a launch must not let them in.
class DefaultFloatMode {
 public:
  DefaultFloatMode() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatMode() { std::fesetenv(&callers_); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  std::fenv_t callers_{};
};

}  // namespace tilewise::metal_bench
