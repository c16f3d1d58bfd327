#pragma once

// Tile tables of the Metal kernels, each row with its reason. Nothing was measured on a GPU: the reasons are counts
// made by the bench, register sums (128 per lane) and what others report (research notes on Metal). A row applies to
// head dimensions and element sizes up to its own; the first that fits wins.

#include <array>
#include <cstddef>
#include <cstdint>

#include "metal/launch_plan.hpp"

namespace tilewise::metal {

struct ForwardTile {
  int head_dim;       // padded D, at most
  int element_bytes;  // at most
  int row_blocks;     // 8 queries each, per simdgroup
  int key_blocks;     // 8 keys each, per tile
  int simdgroups;     // per threadgroup
  bool cache_q;       // Q in registers
  const char* reason;
};

inline constexpr int max_head_dim = 576;  // of D and Dv
inline constexpr int v_block = 128;  // columns of V per threadgroup: O is 16 rows x 128 columns, 64 registers a lane

// K and V come straight from device memory: M3 and later, whose caches hold what neighbouring simdgroups read. Needs
// aligned contiguous rows.
inline constexpr ForwardTile direct_tiles[] = {
    {64, 4, 2, 4, 4, true, "Q and O take 64 registers a lane, scores 16; 130 operand bytes per product"},
    {128, 4, 2, 4, 4, false, "O alone takes 64 registers, so Q is read again per 32 keys; 162 bytes per product"},
    {576, 4, 2, 4, 4, false, "V in blocks of 128 columns, scores computed once per block"},
};
// The same with 8 rows, for grids that do not fill the GPU with 16.
inline constexpr ForwardTile direct_small_tiles[] = {
    {64, 4, 1, 4, 4, true, "half the rows, twice the simdgroups; 257 operand bytes per product"},
    {128, 4, 1, 4, 4, true, "with 8 rows Q and O fit: 64 registers"},
    {576, 4, 1, 4, 4, false, "Q has up to 144 registers: read again per 32 keys"},
};
// K and V tiles in threadgroup memory: M1 and M2, whose cache is small, and any layout that is not aligned. Three
// groups per core want at most 20 KB each.
inline constexpr ForwardTile staged_tiles[] = {
    {64, 4, 2, 4, 4, true, "32 keys: 17.4 KB in float32 at D = 64"},
    {128, 2, 2, 4, 4, false, "32 keys of 16-bit elements: 17.4 KB at D = 128"},
    {128, 4, 2, 2, 4, false, "16 keys: 16.9 KB in float32 at D = 128"},
    {576, 2, 2, 1, 4, false, "8 keys: 11.5 KB of 16-bit elements at D = 576"},
    {576, 4, 2, 1, 4, false, "8 keys: 22.9 KB in float32 at D = 576"},
};
inline constexpr ForwardTile staged_small_tiles[] = {
    {64, 4, 1, 4, 4, true, "as with 16 rows; twice the threadgroup reads per product"},
    {128, 2, 1, 4, 4, true, "as with 16 rows, but Q and O fit: 64 registers"},
    {128, 4, 1, 2, 4, true, "as with 16 rows, but Q and O fit: 64 registers"},
    {576, 2, 1, 1, 4, false, "as with 16 rows"},
    {576, 4, 1, 1, 4, false, "as with 16 rows"},
};

// 16 rows while two waves of simdgroups remain: a core holds about 16 simdgroups that use all their registers.
inline constexpr std::int64_t simdgroups_per_core = 16;
inline constexpr std::int64_t waves_for_16_rows = 2;

// Decode: rows (queries times heads of a group) that share one reading of K and V; more have enough work for forward.
inline constexpr std::int64_t max_decode_rows = 64;
inline constexpr std::int64_t invariant_split_keys = 256;  // of batch-invariant calls: 16 to 64 KB of K at 16 bits

// D or Dv as the kernel sees it: a multiple of 16, above 128 of 32.
constexpr int padded_dim(std::int64_t dim) {
  const std::int64_t unit = dim > 128 ? 32 : 16;
  return static_cast<int>(dim <= 0 ? 16 : (dim + unit - 1) / unit * unit);
}
constexpr int v_columns(std::int64_t v_dim) { return v_dim > v_block ? v_block : padded_dim(v_dim); }

// What forward.metal declares: tiles of K and V with rows 16 bytes apart.
constexpr std::size_t staged_bytes(const ForwardTile& tile, int padded_d, int columns, int element_bytes) {
  const int row_bytes = (padded_d + columns) * element_bytes + 2 * 16;
  return std::size_t{8} * static_cast<std::size_t>(tile.key_blocks) * static_cast<std::size_t>(row_bytes);
}

}  // namespace tilewise::metal
