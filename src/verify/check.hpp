#pragma once

// The conformance suite as a library: every registered kernel x every case. `tilewise check` and the tests run this.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tilewise/types.hpp"

namespace tilewise::verify {

enum class Outcome : std::uint8_t { passed, failed, skipped };

struct CheckResult {
  std::string kernel;
  std::string family;  // "tails", "band", "lengths", ...
  std::string name;    // of the case, e.g. "B41 partial key tile, Sk=129"
  DType dtype = DType::float32;
  Outcome outcome = Outcome::skipped;
  std::string detail;       // why it failed, or the reason of `supports` for a skip
  double max_error = 0;     // largest absolute error of o against the oracle
  double rel_l2_error = 0;  // relative L2 error of o
  double budget_share = 0;  // the largest error of o and lse over what the rule of precision allows it
};

struct CheckOptions {
  DeviceKind device = DeviceKind::cpu;
  std::string_view kernel{};  // a name or a prefix; empty: all
  std::string_view family{};  // empty: all
  bool quick = false;         // skips cases that take more than about 100 ms on one kernel
  bool dissimilar = false;    // skips cases that differ from others in sizes or values alone
};

// Runs everything, calling `report` once per result in a fixed order. Throws std::invalid_argument when no kernel
// matches.
void run_checks(const CheckOptions& options, const std::function<void(const CheckResult&)>& report);

}  // namespace tilewise::verify
