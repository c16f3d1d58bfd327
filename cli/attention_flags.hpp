#pragma once

// The options that `run` and `explain` share: what is computed, and how.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "tilewise/types.hpp"

namespace tilewise::cli {

struct AttentionFlags {
  std::optional<double> scale, softcap;
  bool causal = false;
  std::optional<std::int64_t> left, right, delta;
  std::string align;
  std::optional<double> dropout;
  std::string seed;
  std::optional<std::int64_t> offset;
  std::optional<std::int64_t> threads;
  std::string kernel;
  std::string device = "cpu";
  bool backward = false;
};

void add_attention_flags(CLI::App& app, AttentionFlags& flags);

// What the flags say, without tensors. Throws UsageError for values that no data could make right.
AttentionOptions attention_options(const AttentionFlags& flags);

// `flags.kernel` must outlive the result. Throws UsageError when no kernel has the name.
ExecutionOptions execution_options(const AttentionFlags& flags);

// Throws UsageError when the options hold a band that needs --align or --delta with these tensors, and has neither.
void require_alignment(const AttentionOptions& options, const ConstTensorView& q, const ConstTensorView& k);

}  // namespace tilewise::cli
