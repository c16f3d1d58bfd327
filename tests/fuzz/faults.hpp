#pragma once

// Ways of making a valid call invalid, so that the answer is known: an error that names the argument.

#include <optional>
#include <string>

#include "fuzz/problem.hpp"

namespace tilewise::fuzz {

struct FaultyCall {
  ForwardTensors tensors;
  AttentionOptions options;
  ExecutionOptions execution;
  std::string argument;  // that the message must begin with
};

// One fault in the problem's call; nothing when the chosen fault needs something that the problem does not have.
// May write into the problem's tensors of integers, whose views it then returns.
std::optional<FaultyCall> with_fault(Choices& choices, FuzzedProblem& problem);

}  // namespace tilewise::fuzz
