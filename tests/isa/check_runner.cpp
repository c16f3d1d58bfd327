// The conformance suite without the command's libraries, for machines that are only emulated:
//
//   check_runner KERNEL [FAMILY...]     quick cases of one kernel, of these families or all
//
// Ends with `N passed, N failed, N skipped`; the exit code is 1 when a case failed or none ran.

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "verify/check.hpp"

using namespace tilewise;

namespace {

struct Counts {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
};

void run(const std::string& kernel, const std::string& family, Counts& counts) {
  verify::run_checks({.kernel = kernel, .family = family, .quick = true}, [&](const verify::CheckResult& result) {
    switch (result.outcome) {
      case verify::Outcome::passed: ++counts.passed; break;
      case verify::Outcome::skipped: ++counts.skipped; break;
      case verify::Outcome::failed:
        ++counts.failed;
        std::printf("FAILED %s %s %s \"%s\"\n  %s\n", result.kernel.c_str(), result.family.c_str(),
                    name_of(result.dtype), result.name.c_str(), result.detail.c_str());
        break;
    }
  });
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.empty()) {
    std::fprintf(stderr, "usage: check_runner KERNEL [FAMILY...]\n");
    return 2;
  }
  const std::string kernel = words.front();
  words.erase(words.begin());
  if (words.empty()) words.emplace_back();
  Counts counts;
  try {
    for (const std::string& family : words) {
      const int before = counts.passed + counts.failed;
      run(kernel, family, counts);
      if (counts.passed + counts.failed > before) continue;
      std::printf("FAILED: no case of family '%s' ran on %s\n", family.c_str(), kernel.c_str());
      ++counts.failed;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "check_runner: %s\n", error.what());
    return 2;
  }
  std::printf("%d passed, %d failed, %d skipped\n", counts.passed, counts.failed, counts.skipped);
  return counts.failed > 0 ? 1 : 0;
}
