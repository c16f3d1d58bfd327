// From a Problem to the launches that compute it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "core/tile_range.h"
#include "kernel/sequence.hpp"
#include "metal/kernels/arguments.h"
#include "metal/launch_plan.hpp"
#include "metal/tuning.hpp"

namespace tilewise::metal {
namespace {

using msl::DecodeArguments;
using msl::ForwardArguments;

constexpr std::int64_t max_rows = std::int64_t{1} << 30;  // positions are 32-bit in kernels
constexpr int forward_scalars_index = 14;

const char* msl_name_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float";
    case DType::float16: return "half";
    case DType::bfloat16: return "bfloat";
    default: return nullptr;
  }
}

// Row vectors of 4 elements can be loaded: columns adjoin, rows start at multiples of 4.
bool is_aligned(const TensorSpec& spec) {
  const auto bytes = static_cast<std::int64_t>(size_of(spec.dtype));
  if (spec.shape[3] > 1 && spec.strides[3] != 1) return false;
  for (std::size_t d = 0; d < 3; ++d) {
    if (spec.shape[d] > 1 && spec.strides[d] % 4 != 0) return false;
  }
  return spec.alignment >= 4 * bytes;
}

bool all_aligned(const Problem& p) {
  const bool whole = p.head_dim == padded_dim(p.head_dim) && p.v_dim % v_columns(p.v_dim) == 0 && p.v_dim > 0;
  return whole && is_aligned(p.q) && is_aligned(p.k) && is_aligned(p.v) && is_aligned(p.o);
}

// Whether scores are more than a dot product times an ordinary positive number. So is a sink: the rounding of m in log2
// units cancels among dot products, but not against a logit that comes from elsewhere.
bool has_terms(const Problem& p) {
  const bool ordinary = p.scale >= 0x1p-64 && p.scale <= 0x1p64;
  return p.mask.present() || p.bias.present() || p.alibi_slopes.present() || p.sinks.present() || p.softcap > 0 ||
         !ordinary;
}

const ForwardTile& row_for(std::span<const ForwardTile> table, int padded_d, int element_bytes) {
  for (const ForwardTile& row : table) {
    if (padded_d <= row.head_dim && element_bytes <= row.element_bytes) return row;
  }
  throw std::logic_error("metal tile tables: no row for head_dim " + std::to_string(padded_d));
}

struct ForwardChoice {
  ForwardTile tile;
  bool is_staged;
  bool is_aligned;
};

ForwardChoice choose_forward(const Problem& p) {
  const Gpu gpu = gpu_of(p.machine.features);
  ForwardChoice choice{};
  choice.is_aligned = all_aligned(p);
  choice.is_staged = gpu.family < 9 || !choice.is_aligned;
  const std::int64_t simdgroups = p.batch * p.q_heads * core::ceil_div(p.q_len, 16);
  const bool is_small = simdgroups < waves_for_16_rows * simdgroups_per_core * gpu.cores;
  using Table = std::span<const ForwardTile>;
  const Table table = choice.is_staged ? (is_small ? Table(staged_small_tiles) : Table(staged_tiles))
                                       : (is_small ? Table(direct_small_tiles) : Table(direct_tiles));
  choice.tile = row_for(table, padded_dim(p.head_dim), static_cast<int>(size_of(p.dtype)));
  return choice;
}

// The bytes of a tensor's elements, relative to element 0.
BoundBuffer bound(int index, Role role, const TensorSpec& spec, bool is_written) {
  BoundBuffer buffer{index, role, is_written, 0, 0};
  if (!spec.present()) return {index, Role::none, false, 0, 0};
  const auto bytes = static_cast<std::int64_t>(size_of(spec.dtype));
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(spec.rank); ++d) {
    if (spec.shape[d] == 0) return buffer;
    const std::int64_t last = (spec.shape[d] - 1) * spec.strides[d];
    (last < 0 ? low : high) += last;
  }
  buffer.begin = low * bytes;
  buffer.end = (high + 1) * bytes;
  return buffer;
}

std::vector<BoundBuffer> call_buffers(const Problem& p) {
  return {bound(0, Role::q, p.q, false),
          bound(1, Role::k, p.k, false),
          bound(2, Role::v, p.v, false),
          bound(3, Role::o, p.o, true),
          bound(4, Role::lse, p.lse, true),
          bound(5, Role::mask, p.mask, false),
          bound(6, Role::bias, p.bias, false),
          bound(7, Role::alibi_slopes, p.alibi_slopes, false),
          bound(8, Role::sinks, p.sinks, false),
          bound(9, Role::q_lengths, p.q_lengths, false),
          bound(10, Role::kv_lengths, p.kv_lengths, false),
          bound(11, Role::cu_q, p.cu_q, false),
          bound(12, Role::cu_k, p.cu_k, false),
          bound(13, Role::block_table, p.block_table, false)};
}

core::Strides strides_if_present(const TensorSpec& spec) {
  return spec.present() ? strides_of(spec) : core::Strides{0, 0, 0, 0};
}

ForwardArguments arguments_of(const Problem& p) {
  ForwardArguments a{};
  a.q = strides_of(p.q);
  a.k = strides_of(p.k);
  a.v = strides_of(p.v);
  a.o = strides_of(p.o);
  a.lse = strides_if_present(p.lse);
  a.mask = strides_if_present(p.mask);
  a.bias = strides_if_present(p.bias);
  if (p.alibi_slopes.present()) {
    a.slope_b = p.alibi_slopes.strides[0];
    a.slope_h = p.alibi_slopes.strides[1];
  }
  const auto stride = [](const TensorSpec& spec) { return spec.present() ? spec.strides[0] : 0; };
  const auto is_wide = [](const TensorSpec& spec) { return spec.present() && spec.dtype == DType::int64 ? 1 : 0; };
  a.sink_h = stride(p.sinks);
  a.q_length_stride = stride(p.q_lengths);
  a.k_length_stride = stride(p.kv_lengths);
  a.cu_q_stride = stride(p.cu_q);
  a.cu_k_stride = stride(p.cu_k);
  a.batch = p.batch;
  a.q_heads = p.q_heads;
  a.kv_heads = p.kv_heads;
  a.q_rows = p.q_len;
  a.k_rows = p.kv_len;
  a.head_dim = p.head_dim;
  a.v_dim = p.v_dim;
  if (p.paged()) {
    a.page_size = p.page_size();
    a.num_pages = p.k.shape[0];
    a.table_b = p.block_table.strides[0];
    a.table_page = p.block_table.strides[1];
  }
  a.left = p.left;
  a.right = p.right;
  a.delta = p.delta;
  a.scale = static_cast<float>(p.scale);
  a.scale_log2 = static_cast<float>(p.scale * std::numbers::log2e);
  a.softcap = static_cast<float>(p.softcap);
  a.has_left = p.has_left ? 1 : 0;
  a.has_right = p.has_right ? 1 : 0;
  a.corner = p.corner;
  a.has_lse = p.lse.present() ? 1 : 0;
  a.has_mask = p.mask.present() ? 1 : 0;
  a.has_bias = p.bias.present() ? 1 : 0;
  a.bias_is_float = p.bias.present() && p.bias.dtype == DType::float32 ? 1 : 0;
  a.has_slopes = p.alibi_slopes.present() ? 1 : 0;
  a.has_sinks = p.sinks.present() ? 1 : 0;
  a.has_q_lengths = p.q_lengths.present() ? 1 : 0;
  a.has_k_lengths = p.kv_lengths.present() ? 1 : 0;
  a.has_cu_q = p.cu_q.present() ? 1 : 0;
  a.has_cu_k = p.cu_k.present() ? 1 : 0;
  a.wide_q_lengths = is_wide(p.q_lengths);
  a.wide_k_lengths = is_wide(p.kv_lengths);
  a.wide_cu_q = is_wide(p.cu_q);
  a.wide_cu_k = is_wide(p.cu_k);
  a.heavy_first = p.has_right && !p.packed_queries() ? 1 : 0;
  a.v_blocks = static_cast<tw_i32>(std::max<std::int64_t>(1, core::ceil_div(p.v_dim, v_columns(p.v_dim))));
  return a;
}

template <class Arguments>
std::vector<std::byte> bytes_of(const Arguments& arguments) {
  static_assert(sizeof(Arguments) <= max_scalar_bytes);
  std::vector<std::byte> bytes(sizeof arguments);
  std::memcpy(bytes.data(), &arguments, sizeof arguments);
  return bytes;
}

// Packed rows that no sequence owns are padding, which is written, too.
bool is_empty(const Problem& p) { return (p.batch == 0 && !p.packed_queries()) || p.q_heads == 0 || p.q_len == 0; }

// What no kernel here takes.
Verdict common_limits(const Problem& p) {
  if (p.pass != Pass::forward) return no("the backward pass is not written for Metal");
  if (p.machine.kind != DeviceKind::metal) return no("the tensors are not on a Metal device");
  if (gpu_of(p.machine.features).family < 7) return no("the GPU is older than Apple family 7 (M1)");
  if (msl_name_of(p.dtype) == nullptr)
    return no(std::string("dtype ") + name_of(p.dtype) + " does not exist on Apple GPUs");
  if (p.has_dropout) return no("dropout is not implemented on Metal");
  if (p.head_dim > max_head_dim) {
    return no("head_dim " + std::to_string(p.head_dim) + " is above " + std::to_string(max_head_dim));
  }
  if (p.v_dim > max_head_dim) {
    return no("Dv " + std::to_string(p.v_dim) + " is above " + std::to_string(max_head_dim));
  }
  if (p.q_len > max_rows || p.kv_len > max_rows) {
    return no("more than " + std::to_string(max_rows) + " queries or keys in a sequence");
  }
  return yes();
}

std::vector<std::pair<std::string, std::string>> forward_constants(const Problem& p, const ForwardTile& tile,
                                                                   bool is_staged, bool is_aligned) {
  const auto flag = [](bool x) { return std::string(x ? "1" : "0"); };
  return {{"ATTENTION_T", msl_name_of(p.dtype)},
          {"ATTENTION_D", std::to_string(padded_dim(p.head_dim))},
          {"ATTENTION_DV", std::to_string(v_columns(p.v_dim))},
          {"ATTENTION_ROW_BLOCKS", std::to_string(tile.row_blocks)},
          {"ATTENTION_KEY_BLOCKS", std::to_string(tile.key_blocks)},
          {"ATTENTION_SIMDGROUPS", std::to_string(tile.simdgroups)},
          {"ATTENTION_STAGED", flag(is_staged)},
          {"ATTENTION_ALIGNED", flag(is_aligned)},
          {"ATTENTION_CACHE_Q", flag(tile.cache_q)},
          {"ATTENTION_TERMS", flag(has_terms(p))}};
}

LaunchPlan build_forward(const Problem& p) {
  const ForwardChoice choice = choose_forward(p);
  const ForwardTile& tile = choice.tile;
  const int padded_d = padded_dim(p.head_dim);
  const int columns = v_columns(p.v_dim);
  const auto element_bytes = static_cast<int>(size_of(p.dtype));
  const std::int64_t group_rows = 8 * tile.row_blocks * tile.simdgroups;

  KernelLaunch launch;
  launch.source = "forward.metal";
  launch.function = "attention_forward";
  launch.constants = forward_constants(p, tile, choice.is_staged, choice.is_aligned);
  launch.buffers = call_buffers(p);
  const ForwardArguments arguments = arguments_of(p);
  launch.scalars_index = forward_scalars_index;
  launch.scalars = bytes_of(arguments);
  // Packed sequences may each end in a partial tile, and so may the padding behind the last one.
  const std::int64_t tiles = core::ceil_div(p.q_len, group_rows) + (p.packed_queries() ? p.batch + 1 : 0);
  const std::int64_t items = p.packed_queries() ? 1 : p.batch;
  launch.groups = {static_cast<std::uint32_t>(tiles), static_cast<std::uint32_t>(p.q_heads),
                   static_cast<std::uint32_t>(items * arguments.v_blocks)};
  launch.threads = {simd_width * static_cast<std::uint32_t>(tile.simdgroups), 1, 1};
  if (choice.is_staged) launch.threadgroup_bytes = staged_bytes(tile, padded_d, columns, element_bytes);
  return {{std::move(launch)}, 0};
}

Verdict supports_forward(const Problem& p) {
  if (Verdict verdict = common_limits(p); !verdict) return verdict;
  if (is_empty(p)) return yes();
  return fits(build_forward(p));
}

LaunchPlan plan_forward(const Problem& p) {
  if (const Verdict verdict = supports_forward(p); !verdict) throw std::logic_error(verdict.reason);
  return is_empty(p) ? LaunchPlan{} : build_forward(p);
}

TileShape forward_tile(const Problem&) { return {8, 8}; }

int rank_forward(const Problem&) { return 10; }

// ---------------------------------------------------------------------------------------------- decode and merge

struct DecodeChoice {
  ForwardTile tile;
  std::int64_t rows;  // that share one reading of K and V: Sq times the heads of a group
  std::int64_t row_tiles;
  std::int64_t split_keys;
  std::int64_t splits;
};

DecodeChoice choose_decode(const Problem& p) {
  DecodeChoice choice{};
  choice.rows = p.q_len * (p.kv_heads > 0 ? p.q_heads / p.kv_heads : 0);
  const auto element_bytes = static_cast<int>(size_of(p.dtype));
  using Table = std::span<const ForwardTile>;
  const Table table = choice.rows <= 8 ? Table(direct_small_tiles) : Table(direct_tiles);
  choice.tile = row_for(table, padded_dim(p.head_dim), element_bytes);
  choice.row_tiles = core::ceil_div(choice.rows, 8 * choice.tile.row_blocks);
  const std::int64_t grain = 8 * choice.tile.key_blocks;
  if (p.batch_invariant) {  // cut without looking at the batch or the GPU
    choice.split_keys = invariant_split_keys;
  } else {
    const std::int64_t wanted =
        waves_for_16_rows * simdgroups_per_core * std::max(1U, gpu_of(p.machine.features).cores);
    const std::int64_t others = std::max<std::int64_t>(1, p.batch * p.kv_heads * choice.row_tiles);
    const std::int64_t parts = std::max<std::int64_t>(1, core::ceil_div(wanted, others));
    choice.split_keys = core::ceil_div(core::ceil_div(std::max<std::int64_t>(1, p.kv_len), parts), grain) * grain;
  }
  choice.splits = std::max<std::int64_t>(1, core::ceil_div(p.kv_len, choice.split_keys));
  return choice;
}

LaunchPlan build_decode(const Problem& p) {
  const DecodeChoice choice = choose_decode(p);
  DecodeArguments arguments{};
  arguments.call = arguments_of(p);
  arguments.split_keys = choice.split_keys;
  arguments.splits = static_cast<tw_i32>(choice.splits);
  arguments.row_tiles = static_cast<tw_i32>(choice.row_tiles);

  const std::int64_t parts = p.batch * p.q_heads * p.q_len * choice.splits;
  const std::int64_t o_bytes = parts * p.v_dim * 4;  // a multiple of 64: Dv is one of 16
  const std::int64_t state_bytes = parts * 8;
  const auto with_scratch = [&](std::initializer_list<int> indices, bool is_written) {
    std::vector<BoundBuffer> buffers;
    for (const BoundBuffer& buffer : call_buffers(p)) {
      if (std::find(indices.begin(), indices.end(), buffer.index) != indices.end()) buffers.push_back(buffer);
    }
    buffers.push_back({15, Role::scratch, is_written, 0, o_bytes});
    buffers.push_back({16, Role::scratch, is_written, o_bytes, o_bytes + state_bytes});
    return buffers;
  };

  KernelLaunch decode;
  decode.source = "decode.metal";
  decode.function = "attention_decode";
  decode.constants = forward_constants(p, choice.tile, false, true);
  decode.buffers = with_scratch({0, 1, 2, 5, 6, 7, 9, 10, 11, 12, 13}, true);
  decode.scalars_index = forward_scalars_index;
  decode.scalars = bytes_of(arguments);
  decode.groups = {static_cast<std::uint32_t>(core::ceil_div(choice.splits, choice.tile.simdgroups)),
                   static_cast<std::uint32_t>(p.kv_heads * choice.row_tiles),
                   static_cast<std::uint32_t>(p.batch * arguments.call.v_blocks)};
  decode.threads = {simd_width * static_cast<std::uint32_t>(choice.tile.simdgroups), 1, 1};

  KernelLaunch merge;
  merge.source = "merge.metal";
  merge.function = "attention_merge";
  merge.constants = {{"ATTENTION_T", msl_name_of(p.dtype)}, {"ATTENTION_TERMS", has_terms(p) ? "1" : "0"}};
  merge.buffers = with_scratch({3, 4, 8, 9, 10, 11, 12, 13}, false);
  merge.scalars_index = forward_scalars_index;
  merge.scalars = decode.scalars;
  merge.groups = {static_cast<std::uint32_t>(p.q_len), static_cast<std::uint32_t>(p.q_heads),
                  static_cast<std::uint32_t>(p.batch)};
  merge.threads = {simd_width, 1, 1};
  return {{std::move(decode), std::move(merge)}, static_cast<std::size_t>(o_bytes + state_bytes)};
}

Verdict supports_decode(const Problem& p) {
  if (Verdict verdict = common_limits(p); !verdict) return verdict;
  if (p.packed_queries() || p.packed_keys()) return no("packed sequences are for metal.simdgroup.forward");
  if (is_empty(p)) return yes();
  const std::int64_t rows = choose_decode(p).rows;
  if (rows > max_decode_rows) {
    return no(std::to_string(rows) + " query rows share a KV head; more than " + std::to_string(max_decode_rows) +
              " are for metal.simdgroup.forward");
  }
  if (!all_aligned(p)) {
    return no("q, k, v and o need contiguous rows of a multiple of 16 elements (Dv above 128: of 128), aligned to 4");
  }
  return fits(build_decode(p));
}

LaunchPlan plan_decode(const Problem& p) {
  if (const Verdict verdict = supports_decode(p); !verdict) throw std::logic_error(verdict.reason);
  return is_empty(p) ? LaunchPlan{} : build_decode(p);
}

// Above forward while forward's grid, a simdgroup per 8 queries, would leave most of the GPU idle.
int rank_decode(const Problem& p) {
  const std::int64_t simdgroups = p.batch * p.q_heads * core::ceil_div(p.q_len, 8);
  const bool is_idle = simdgroups < simdgroups_per_core * gpu_of(p.machine.features).cores;
  return is_idle || choose_decode(p).rows >= 4 ? 20 : 5;
}

constexpr PlannedKernel kernels[] = {
    {"metal.simdgroup.forward", supports_forward, rank_forward, forward_tile, plan_forward},
    {"metal.simdgroup.decode", supports_decode, rank_decode, forward_tile, plan_decode},
};

}  // namespace

std::span<const PlannedKernel> planned_kernels() { return kernels; }

Verdict fits(const LaunchPlan& plan) {
  for (const KernelLaunch& launch : plan.launches) {
    const std::uint64_t threads = std::uint64_t{launch.threads[0]} * launch.threads[1] * launch.threads[2];
    if (threads == 0 || threads > max_threads) {
      return no(std::to_string(threads) + " threads in a threadgroup; the GPU allows " + std::to_string(max_threads));
    }
    if (launch.threadgroup_bytes > max_threadgroup_bytes) {
      return no(std::to_string(launch.threadgroup_bytes) + " bytes of threadgroup memory; the GPU has " +
                std::to_string(max_threadgroup_bytes));
    }
    for (const std::uint32_t groups : launch.groups) {
      if (groups == 0) return no("an empty grid");
    }
  }
  return yes();
}

}  // namespace tilewise::metal
