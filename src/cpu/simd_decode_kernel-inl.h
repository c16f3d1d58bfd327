#pragma once

// The kernel for few queries as floor 2 sees it. What is in this file runs on any machine.

#include "cpu/simd_decode_merge-inl.h"
#include "cpu/simd_kernel-inl.h"

namespace tilewise {
namespace HWY_NAMESPACE {

inline Verdict supports_decode(const Problem& p, std::uint32_t feature, const char* feature_name) {
  Verdict verdict = supports_simd(p, feature, feature_name);
  if (verdict && p.q_len > few_queries) {
    return no(std::to_string(p.q_len) + " queries are more than " + std::to_string(few_queries));
  }
  return verdict;
}

// Against the kernel with queries in the lanes, which makes 1.2 times as much of full lanes, but shares out whole heads
// only. Never by batch size or threads: an item has the same bits in any batch.
inline bool prefers_decode(const Problem& p) {
  constexpr tw_i64 few_heads = 4;  // 2 and more cores stay idle
  const tw_i64 lane_count = p.dtype == DType::float64 ? lanes<double> : lanes<float>;
  const bool lanes_stay_empty = 10 * p.q_len < 8 * core::ceil_div(p.q_len, lane_count) * lane_count;
  return p.kv_len >= 4 * p.q_len && (lanes_stay_empty || p.q_heads < few_heads);
}

template <class T>
std::size_t decode_workspace_as(const Problem& p, const Execution& execution) {
  const DecodeLayout<T> layout = decode_layout_of<T>(p);
  const tw_i64 elements = execution.parallel->workers * layout.worker_elements + layout.wave * layout.group_partials;
  return static_cast<std::size_t>(elements) * sizeof(T);
}

inline std::size_t decode_workspace(const Problem& p, const Execution& execution) {
  return p.dtype == DType::float64 ? decode_workspace_as<double>(p, execution)
                                   : decode_workspace_as<float>(p, execution);
}

// Padding rows of every head and item.
inline void clear_padding(const Problem& p, const Buffers& buffers) {
  cpu::clear_unowned_rows(p, buffers);
  for (tw_i64 b = 0; b < p.batch; ++b) {
    const core::Sequence sequence = sequence_of(p, buffers, b);
    const core::Range rows{sequence.q_start + sequence.q_len, sequence.q_start + sequence.q_slot};
    for (tw_i64 h = 0; rows.begin < rows.end && h < p.q_heads; ++h) {
      cpu::clear_rows(p, buffers, sequence.q_item, h, rows);
    }
  }
}

template <class T>
void run_decode_as(const Problem& p, const Buffers& buffers, Execution& execution) {
  const DecodeCall<T> call{call_of<T>(p, buffers), decode_layout_of<T>(p)};
  const DecodeLayout<T>& layout = call.layout;
  void* const workspace = execution.workspace.data;
  T* const partials = static_cast<T*>(workspace) + execution.parallel->workers * layout.worker_elements;
  const tw_i64 groups = p.batch * p.kv_heads * layout.row_groups;
  const tw_i64 most = core::min_i64(layout.chunk_limit, core::ceil_div(p.kv_len, least_chunk));
  const auto chunks_of = [&](const RowGroup& group) {
    return core::ceil_div(group.sequence.k_len, chunk_keys(layout, group.sequence.k_len));
  };
  for (tw_i64 first = 0; first < groups; first += layout.wave) {
    const tw_i64 wave = core::min_i64(layout.wave, groups - first);
    parallel_for(execution.parallel, wave * most, [&](std::int64_t index, int worker) {
      const cpu::DefaultFloatEnvironment environment;
      const RowGroup group = group_at(call, first + index / most);
      if (group.rows.begin >= group.rows.end || index % most >= chunks_of(group)) return;
      chunk_task(call, group, index % most, partials + index / most * layout.group_partials,
                 decode_scratch_of(layout, workspace, worker));
    });
    parallel_for(execution.parallel, wave, [&](std::int64_t index, int worker) {
      const cpu::DefaultFloatEnvironment environment;
      const RowGroup group = group_at(call, first + index);
      if (group.rows.begin >= group.rows.end) return;
      merge_group(call, group, chunks_of(group), partials + index * layout.group_partials,
                  decode_scratch_of(layout, workspace, worker));
    });
  }
}

inline void run_decode(const Problem& p, const Buffers& buffers, Execution& execution) {
  const cpu::DefaultFloatEnvironment environment;  // the scale is rounded here
  clear_padding(p, buffers);
  p.dtype == DType::float64 ? run_decode_as<double>(p, buffers, execution)
                            : run_decode_as<float>(p, buffers, execution);
}

inline TileShape decode_tile(const Problem& p) { return {core::max_i64(1, p.q_len), decode_block}; }

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
