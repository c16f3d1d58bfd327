#pragma once

// The tensors of a problem, from a safetensors file or from .npy files.

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "tilewise/attention.hpp"
#include "verify/tensor.hpp"

namespace tilewise::cli {

struct InputFlags {
  std::string input;                         // a safetensors file
  std::string prefix;                        // of the names in it
  std::map<std::string, std::string> files;  // tensor name -> .npy file
};

// --input, --prefix and one option for every tensor: --q, --kv-lengths, ...
void add_input_flags(CLI::App& app, InputFlags& flags);

// What a file held. Names are without the prefix.
struct InputTensors {
  std::map<std::string, verify::Tensor> tensors{};
  verify::Tensor expected{};           // what --compare names; absent without it
  std::vector<std::string> ignored{};  // names in the file that a forward pass has no use for
};

// True when any of the flags is given.
bool has_input(const InputFlags& flags);

// Throws UsageError unless the flags name one safetensors file, or .npy files for q, k and v at least.
void check_input_flags(const InputFlags& flags);

// Reads q, k, v and what else is there of the optional tensors, and `expected` (a tensor's name in the safetensors
// file, or a .npy file; empty: none). The flags have been checked. Throws files::FileError.
InputTensors load_inputs(const InputFlags& flags, const std::string& expected);

// Points `options` at the optional tensors.
void attach(InputTensors& inputs, AttentionOptions& options);

// q, k, v of the call; o and lse are absent. Throws std::invalid_argument when their ranks or dtypes cannot be right.
ForwardTensors forward_inputs(InputTensors& inputs);

}  // namespace tilewise::cli
