// conformance_driver KERNEL [FAMILY...]: runs the families' quick cases, stops at the first failure and exits 1.
// seeded_faults.py links it with kernels that are wrong on purpose.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "verify/cases.hpp"
#include "verify/check.hpp"

namespace {

using namespace tilewise::verify;

struct Stop {};

void stop_at_failure(const CheckResult& result) {
  if (result.outcome != Outcome::failed) return;
  std::printf("%s, %s, %s: %s\n", result.family.c_str(), result.name.c_str(), tilewise::name_of(result.dtype),
              result.detail.c_str());
  throw Stop{};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: conformance_driver KERNEL [FAMILY...]\n");
    return 2;
  }
  std::vector<std::string> families(argv + 2, argv + argc);
  if (families.empty()) families = family_names();
  try {
    for (const std::string& family : families) {
      run_checks({.kernel = argv[1], .family = family, .quick = true}, stop_at_failure);
    }
  } catch (const Stop&) {
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "conformance_driver: %s\n", error.what());
    return 2;
  }
  return 0;
}
