#include "api/explain.hpp"

#include <algorithm>

#include "core/tile_range.h"
#include "kernel/sequence.hpp"

namespace tilewise::api {
namespace {

using std::int64_t;

struct Tiles {
  int64_t visited = 0;
  int64_t total = 0;
};

// Without addresses a packed problem counts as one sequence that fills the tensors, lengths as full.
core::Sequence sequence_or_full(const Call& call, int64_t b) {
  const Problem& p = call.problem;
  const Buffers& buffers = call.buffers;
  const bool readable = p.machine.kind == DeviceKind::cpu && (!p.q_lengths.present() || buffers.q_lengths != nullptr) &&
                        (!p.kv_lengths.present() || buffers.kv_lengths != nullptr) &&
                        (!p.cu_q.present() || buffers.cu_q != nullptr) &&
                        (!p.cu_k.present() || buffers.cu_k != nullptr);
  if (readable) return sequence_of(p, buffers, b);
  const bool counts = !p.packed_queries() || b == 0;
  return core::clamped_sequence(0, 0, {0, counts ? p.q_len : 0}, {0, counts ? p.kv_len : 0}, p.q_len, p.kv_len);
}

// Tiles of one head of one sequence.
Tiles tiles_of(const Problem& p, const core::Sequence& sequence, TileShape tile) {
  const core::Band band = band_for(p, sequence);
  Tiles tiles;
  for (int64_t begin = 0; begin < sequence.q_len; begin += tile.queries) {
    const core::Range queries{begin, std::min(begin + tile.queries, sequence.q_len)};
    const core::Range visited = core::key_tiles(band, queries, sequence.k_len, tile.keys);
    tiles.visited += visited.end - visited.begin;
    tiles.total += core::ceil_div(sequence.k_len, tile.keys);
  }
  return tiles;
}

}  // namespace

Explanation explained(const Call& call, const Choice& choice) {
  const Problem& p = call.problem;
  Explanation result;
  result.refused = choice.refused;
  for (const Kernel* kernel : choice.ready) result.ready.emplace_back(kernel->name);
  if (!choice.ready.empty()) result.chosen = choice.ready.front()->name;

  const TileShape tile = choice.ready.empty() ? TileShape{} : choice.ready.front()->tile(p);
  const auto element = static_cast<double>(size_of(p.dtype));
  const double lse = p.lse.present() ? static_cast<double>(size_of(p.lse.dtype)) : 0;
  const auto widths = static_cast<double>(p.head_dim + p.v_dim);
  for (int64_t b = 0; b < p.batch; ++b) {
    const core::Sequence sequence = sequence_or_full(call, b);
    const core::Band band = band_for(p, sequence);
    const auto pairs = static_cast<double>(core::visible_pairs(band, sequence.q_len, sequence.k_len));
    const auto q_rows = static_cast<double>(sequence.q_len * p.q_heads);
    const auto k_rows = static_cast<double>(sequence.k_len * p.kv_heads);
    result.flops += 2 * widths * static_cast<double>(p.q_heads) * pairs;
    result.bytes += (q_rows + k_rows) * widths * element + q_rows * lse;
    if (choice.ready.empty()) continue;
    const Tiles tiles = tiles_of(p, sequence, tile);
    result.tiles_visited += p.q_heads * tiles.visited;
    result.tiles_total += p.q_heads * tiles.total;
  }
  return result;
}

}  // namespace tilewise::api
