#include "cpu/scalar_forward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/philox.h"
#include "core/softmax_scalar.h"
#include "core/tile_range.h"
#include "cpu/float_environment.hpp"
#include "cpu/padding.hpp"
#include "kernel/float16.hpp"
#include "kernel/parallel.hpp"
#include "kernel/sequence.hpp"

namespace tilewise::cpu {
namespace {

using core::scalar::Grown;
using core::scalar::Ops;
using core::scalar::Rows;

constexpr std::int64_t key_block = 64;     // keys between two rescalings; also the fixed grain of summation
constexpr std::int64_t row_block = 16;     // queries per task: small, so that short problems use all threads
constexpr std::int64_t scratch_line = 64;  // bytes: workers never share a cache line

// How a stored dtype is read into, and written from, the type that computes: double for float64, float for all others.
template <class Stored>
struct Element;
template <>
struct Element<double> {
  using Compute = double;
  static double load(double x) { return x; }
  static double store(double x) { return x; }
};
template <>
struct Element<float> {
  using Compute = float;
  static float load(float x) { return x; }
  static float store(float x) { return x; }
};
template <>
struct Element<Float16> {
  using Compute = float;
  static float load(Float16 x) { return to_float(x); }
  static Float16 store(float x) { return to_float16(x); }
};
template <>
struct Element<BFloat16> {
  using Compute = float;
  static float load(BFloat16 x) { return to_float(x); }
  static BFloat16 store(float x) { return to_bfloat16(x); }
};

// One query row: where it is, and what it sees. Positions i and j count inside the sequence.
struct Row {
  core::Sequence sequence;
  core::Band band;
  std::int64_t b;  // batch item or packed sequence
  std::int64_t h;  // query head
  std::int64_t kv_head;
  std::int64_t i;
};

// Scratch of one worker, in compute type.
template <class T>
struct Scratch {
  T* q;        // [D]
  T* o;        // [Dv], unnormalised output
  T* block_o;  // [Dv], what one key block adds to it
  T* scores;   // [key_block], in natural units
  bool* seen;  // [key_block]
};

std::int64_t rounded_up(std::int64_t bytes) { return core::ceil_div(bytes, scratch_line) * scratch_line; }

std::int64_t bytes_per_worker(const Problem& p) {
  const std::int64_t compute = p.dtype == DType::float64 ? 8 : 4;
  return rounded_up(p.head_dim * compute) + 2 * rounded_up(p.v_dim * compute) + rounded_up(key_block * compute) +
         rounded_up(key_block);
}

template <class T>
Scratch<T> scratch_of(const Problem& p, Execution& execution, int worker) {
  auto* at = static_cast<char*>(execution.workspace.data) + worker * bytes_per_worker(p);
  const auto take = [&at](std::int64_t bytes) {
    char* begin = at;
    at += rounded_up(bytes);
    return static_cast<void*>(begin);
  };
  constexpr std::int64_t size = sizeof(T);
  return {static_cast<T*>(take(p.head_dim * size)), static_cast<T*>(take(p.v_dim * size)),
          static_cast<T*>(take(p.v_dim * size)), static_cast<T*>(take(key_block * size)),
          static_cast<bool*>(take(key_block))};
}

template <class Stored>
class ScalarForward {
 public:
  using T = typename Element<Stored>::Compute;

  ScalarForward(const Problem& problem, const Buffers& buffers)
      : p_(problem),
        buffers_(buffers),
        q_(strides_of(problem.q)),
        k_(strides_of(problem.k)),
        v_(strides_of(problem.v)),
        o_(strides_of(problem.o)) {}

  void attend(const Row& row, Scratch<T> scratch) const {
    load_query(row, scratch);
    Rows<T> rows = first_rows(row);
    std::fill_n(scratch.o, p_.v_dim, T(0));
    const core::Range keys = core::visible_keys(row.band, row.i, row.sequence.k_len);
    for (std::int64_t begin = keys.begin / key_block * key_block; begin < keys.end; begin += key_block) {
      const core::Range block{std::max(begin, keys.begin), std::min(begin + key_block, keys.end)};
      const T block_max = scores(row, block, scratch);
      const Grown<T> grown = core::scalar::grow(rows, block_max, unit());
      const T sum = accumulate(row, block, grown.rows.m, scratch);
      rows = core::scalar::add(grown.rows, sum);
      rescale_and_add(grown.alpha, scratch);
    }
    store(row, rows, scratch);
  }

 private:
  // Scores and m are in natural units, each worth log2(e) units of the exponent of 2.
  static T unit() { return Ops<T>::log2_e(); }

  void load_query(const Row& row, Scratch<T> scratch) const {
    const auto* q = static_cast<const Stored*>(buffers_.q);
    const std::int64_t at = core::offset_of(q_, row.sequence.q_item, row.h, row.sequence.q_start + row.i, 0);
    for (std::int64_t d = 0; d < p_.head_dim; ++d) scratch.q[d] = Element<Stored>::load(q[at + d * q_.d]);
  }

  // Before any key: the sink if there is one.
  Rows<T> first_rows(const Row& row) const {
    if (!p_.sinks.present()) return core::scalar::no_keys<T>();
    const float sink = static_cast<const float*>(buffers_.sinks)[row.h * p_.sinks.strides[0]];
    return core::scalar::sink_only(T(sink));
  }

  // Offset of key j's row in k or v.
  std::int64_t key_offset(core::Strides strides, const Row& row, std::int64_t j) const {
    if (!p_.paged()) {
      return core::offset_of(strides, row.sequence.k_item, row.kv_head, row.sequence.k_start + j, 0);
    }
    const core::PagedRow at = core::paged_row(j, p_.page_size());
    const auto* table = static_cast<const std::int32_t*>(buffers_.block_table);
    const std::int32_t page = table[row.b * p_.block_table.strides[0] + at.page * p_.block_table.strides[1]];
    return core::offset_of(strides, page, row.kv_head, at.row, 0);
  }

  // The additive bias of a pair; 0 without one.
  T bias(const Row& row, std::int64_t j) const {
    if (!p_.bias.present()) return T(0);
    const std::int64_t at = core::offset_of(strides_of(p_.bias), row.b, row.h, row.i, j);
    if (p_.bias.dtype == DType::float32) return T(static_cast<const float*>(buffers_.bias)[at]);
    return Element<Stored>::load(static_cast<const Stored*>(buffers_.bias)[at]);
  }

  bool mask_allows(const Row& row, std::int64_t j) const {
    if (!p_.mask.present()) return true;
    return static_cast<const std::uint8_t*>(
               buffers_.mask)[core::offset_of(strides_of(p_.mask), row.b, row.h, row.i, j)] != 0;
  }

  T alibi(const Row& row, std::int64_t j) const {
    if (!p_.alibi_slopes.present()) return T(0);
    const std::int64_t at = row.b * p_.alibi_slopes.strides[0] + row.h * p_.alibi_slopes.strides[1];
    const float slope = static_cast<const float*>(buffers_.alibi_slopes)[at];
    const std::int64_t delta = core::alibi_delta(p_.corner, p_.delta, row.sequence.q_len, row.sequence.k_len);
    return core::scalar::alibi(T(slope), static_cast<T>(core::alibi_distance(row.i, j, delta)));
  }

  // Scores of a block in natural units; returns their maximum. An invisible key is not read.
  T scores(const Row& row, core::Range block, Scratch<T> scratch) const {
    const auto* k = static_cast<const Stored*>(buffers_.k);
    T block_max = -std::numeric_limits<T>::infinity();
    for (std::int64_t j = block.begin; j < block.end; ++j) {
      const std::int64_t slot = j - block.begin;
      const T added_bias = bias(row, j);
      scratch.seen[slot] = mask_allows(row, j) && added_bias != -std::numeric_limits<T>::infinity();
      if (!scratch.seen[slot]) continue;
      const std::int64_t at = key_offset(k_, row, j);
      T dot = 0;
      for (std::int64_t d = 0; d < p_.head_dim; ++d) dot += scratch.q[d] * Element<Stored>::load(k[at + d * k_.d]);
      T s = static_cast<T>(p_.scale) * dot;
      if (p_.softcap > 0) s = core::scalar::softcapped(s, static_cast<T>(p_.softcap));
      s += added_bias + alibi(row, j);
      scratch.scores[slot] = s;
      block_max = Ops<T>::max(s, block_max);
    }
    return block_max;
  }

  // Weights of the block times its values into block_o; returns the sum of the weights before dropout.
  T accumulate(const Row& row, core::Range block, T m, Scratch<T> scratch) const {
    const auto* v = static_cast<const Stored*>(buffers_.v);
    std::fill_n(scratch.block_o, p_.v_dim, T(0));
    T sum = 0;
    for (std::int64_t j = block.begin; j < block.end; ++j) {
      const std::int64_t slot = j - block.begin;
      if (!scratch.seen[slot]) continue;
      const T w = core::scalar::weight(scratch.scores[slot], m, unit());
      sum += w;
      if (dropped(row, j)) continue;
      const std::int64_t at = key_offset(v_, row, j);
      for (std::int64_t c = 0; c < p_.v_dim; ++c) scratch.block_o[c] += w * Element<Stored>::load(v[at + c * v_.d]);
    }
    return sum;
  }

  bool dropped(const Row& row, std::int64_t j) const {
    if (!p_.has_dropout) return false;
    const auto threshold =
        static_cast<std::uint64_t>(std::ceil(p_.dropout_p * 0x1p32));  // up to 2^32: drops everything
    return core::dropout_word(p_.dropout_seed, p_.dropout_offset, row.b * p_.q_heads + row.h, row.i, j) < threshold;
  }

  void rescale_and_add(T alpha, Scratch<T> scratch) const {
    for (std::int64_t c = 0; c < p_.v_dim; ++c) scratch.o[c] = scratch.o[c] * alpha + scratch.block_o[c];
  }

  void store(const Row& row, Rows<T> rows, Scratch<T> scratch) const {
    auto* o = static_cast<Stored*>(buffers_.o);
    const std::int64_t i = row.sequence.q_start + row.i;
    const std::int64_t at = core::offset_of(o_, row.sequence.q_item, row.h, i, 0);
    const T kept = p_.has_dropout && p_.dropout_p < 1 ? T(1 / (1 - p_.dropout_p)) : T(1);
    const T factor = core::scalar::inverse_sum(rows) * kept;
    for (std::int64_t c = 0; c < p_.v_dim; ++c) o[at + c * o_.d] = Element<Stored>::store(scratch.o[c] * factor);
    if (!p_.lse.present()) return;
    const std::int64_t lse_at = core::offset_of(strides_of(p_.lse), row.sequence.q_item, row.h, i, 0);
    static_cast<T*>(buffers_.lse)[lse_at] = core::scalar::lse(rows, T(1));
  }

  const Problem& p_;
  const Buffers& buffers_;
  core::Strides q_, k_, v_, o_;
};

std::int64_t longest_slot(const Problem& p, const Buffers& buffers) {
  if (!p.packed_queries()) return p.q_len;
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) longest = std::max(longest, sequence_of(p, buffers, b).q_slot);
  return longest;
}

template <class Stored>
void run_as(const Problem& p, const Buffers& buffers, Execution& execution) {
  const ScalarForward<Stored> kernel(p, buffers);
  const std::int64_t blocks = core::ceil_div(longest_slot(p, buffers), row_block);
  clear_unowned_rows(p, buffers);
  parallel_for(execution.parallel, p.batch * p.q_heads * blocks, [&](std::int64_t task, int worker) {
    const DefaultFloatEnvironment environment;
    const std::int64_t b = task / (p.q_heads * blocks);
    const std::int64_t h = task / blocks % p.q_heads;
    const core::Sequence sequence = sequence_of(p, buffers, b);
    const core::Range rows = core::split_range(sequence.q_slot, row_block, task % blocks);
    const std::int64_t queries_end = std::min(rows.end, sequence.q_len);
    Row row{sequence, band_for(p, sequence), b, h, core::kv_head_of(h, p.q_heads, p.kv_heads), 0};
    for (row.i = rows.begin; row.i < queries_end; ++row.i) {
      kernel.attend(row, scratch_of<typename Element<Stored>::Compute>(p, execution, worker));
    }
    clear_rows(p, buffers, sequence.q_item, h,
               {sequence.q_start + std::max(rows.begin, sequence.q_len), sequence.q_start + rows.end});
  });
}

void run(const Problem& p, const Buffers& buffers, Execution& execution) {
  switch (p.dtype) {
    case DType::float64: return run_as<double>(p, buffers, execution);
    case DType::float32: return run_as<float>(p, buffers, execution);
    case DType::float16: return run_as<Float16>(p, buffers, execution);
    case DType::bfloat16: return run_as<BFloat16>(p, buffers, execution);
    default: return;  // validation admits no other dtype
  }
}

}  // namespace

const Kernel scalar_forward{
    .name = "cpu.scalar.forward",
    .supports =
        [](const Problem& p) { return p.pass == Pass::forward ? yes() : no("it computes the forward pass only"); },
    .rank = [](const Problem&) { return 0; },  // the last resort: any other kernel that supports a problem is faster
    .tile = [](const Problem&) { return TileShape{1, key_block}; },
    .workspace =
        [](const Problem& p, const Execution& execution) {
          return static_cast<std::size_t>(execution.parallel->workers * bytes_per_worker(p));
        },
    .run = run,
};

}  // namespace tilewise::cpu
