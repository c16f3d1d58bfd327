#pragma once

// A forward call decoded from the fuzzer's bytes: valid as it stands, whatever the bytes.

#include <cstdint>
#include <string>

#include "fuzz/choices.hpp"
#include "verify/call.hpp"

namespace tilewise::fuzz {

struct FuzzedProblem {
  verify::Call call;         // every tensor in heap memory of exactly its size, apart from up to 3 elements in front
  std::int64_t kv_rows = 0;  // keys of a slot, of all packed sequences, or of a row of the page table
  bool values_are_keys = false;  // v is a view of k's memory
  std::string kernel;            // forced; empty: the library chooses
  int threads = 1;               // of the second run
  bool callers_pool = false;     // the second run uses a parallel_for of the caller

  ForwardTensors tensors();
};

FuzzedProblem decode(Choices& choices);

// Everything about a problem but its values, in a few lines.
std::string description(FuzzedProblem& problem);

}  // namespace tilewise::fuzz
