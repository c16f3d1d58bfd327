#pragma once

// The forward kernel of one instruction set as floor 2 sees it. What is in this file runs on any machine.

#include "cpu/simd_store-inl.h"
#include "kernel/parallel.hpp"

namespace tilewise {
namespace HWY_NAMESPACE {

inline tw_i64 longest_slot(const Problem& p, const Buffers& buffers) {
  if (!p.packed_queries()) return p.q_len;
  tw_i64 longest = 0;
  for (tw_i64 b = 0; b < p.batch; ++b) longest = core::max_i64(longest, sequence_of(p, buffers, b).q_slot);
  return longest;
}

template <class T>
void run_forward_as(const Problem& p, const Buffers& buffers, Execution& execution) {
  const ForwardCall<T> call{call_of<T>(p, buffers), layout_of<T>(p)};
  const tw_i64 blocks = core::ceil_div(longest_slot(p, buffers), call.layout.item_queries);
  cpu::clear_unowned_rows(p, buffers);
  parallel_for(execution.parallel, p.batch * p.q_heads * blocks, [&](std::int64_t index, int worker) {
    const cpu::DefaultFloatEnvironment environment;
    run_item(call, blocks, index, worker, execution.workspace.data);
  });
}

inline void run_forward(const Problem& p, const Buffers& buffers, Execution& execution) {
  const cpu::DefaultFloatEnvironment environment;  // the scale is rounded here
  p.dtype == DType::float64 ? run_forward_as<double>(p, buffers, execution)
                            : run_forward_as<float>(p, buffers, execution);
}

inline std::size_t forward_workspace(const Problem& p, const Execution& execution) {
  const auto workers = static_cast<std::size_t>(execution.parallel->workers);
  return p.dtype == DType::float64 ? workers * static_cast<std::size_t>(layout_of<double>(p).elements) * sizeof(double)
                                   : workers * static_cast<std::size_t>(layout_of<float>(p).elements) * sizeof(float);
}

inline TileShape forward_tile(const Problem& p) {
  return {p.dtype == DType::float64 ? tile_lanes<double> : tile_lanes<float>, key_block};
}

// What none of the SIMD kernels does; empty if there is nothing.
inline Verdict supports_simd(const Problem& p, std::uint32_t feature, const char* feature_name) {
  if ((p.machine.features & feature) == 0) return no(std::string("this processor has no ") + feature_name);
  if (p.pass != Pass::forward) return no("it computes the forward pass only");
  if (p.has_dropout) return no("it has no dropout");
  if (p.paged()) return no("it has no paged K and V");
  return yes();
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
