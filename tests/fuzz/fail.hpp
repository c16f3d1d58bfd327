#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace tilewise::fuzz {

// Reports a broken property: libFuzzer keeps the input of a process that aborts.
[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "FUZZ FAILURE: %s\n", what.c_str());
  std::abort();
}

}  // namespace tilewise::fuzz
