#pragma once

// Grids of benchmark problems, as JSON files in bench/grids (or any path):
//
//   {"schema": 1, "name": "founding", "description": "...", "pass": "forward",
//    "problems": [{"S": [64, 256], "D": [32, 64], "causal": [false, true]},
//                 {"name": "Llama-3.1 8B", "Hq": 32, "Hkv": 8, "S": 8192, "D": 128, "causal": true}]}
//
// A field that is a list stands for one problem per value, the last such field varying fastest, and adds its value to
// the name. Fields: name; B, Hq, Hkv, H (both), Sq, Sk, S (both), D, Dv (default D); dtype (default float32); pass;
// causal, left, right, window (keys that a causal query sees, itself included: left = window - 1), alignment (default:
// bottom_right where a band meets Sq != Sk or lengths); scale, softcap; and as booleans sinks, bias (dense,
// [1, Hq, Sq, Sk]), shared_bias ([1, 1, Sq, Sk], broadcast over heads), key_mask (bool [B, 1, 1, Sk] that hides about
// one key in 64: no tile can be skipped, and FLOPs count all pairs), ragged (lengths between S/2 and S) and fused (q, k
// and v are slices of one [B, S, 3, H, D] tensor).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilewise/types.hpp"

namespace tilewise::cli {

struct GridProblem {
  std::string name;
  std::int64_t batch = 1, q_heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, head_dim = 64, v_dim = 64;
  DType dtype = DType::float32;
  bool backward = false;
  std::optional<std::int64_t> left, right;
  std::optional<Alignment> alignment;
  std::optional<double> scale, softcap;
  bool sinks = false, bias = false, shared_bias = false, key_mask = false, ragged = false, fused = false;

  [[nodiscard]] std::int64_t bias_heads() const { return shared_bias ? 1 : q_heads; }
};

struct Grid {
  std::string name;
  std::vector<GridProblem> problems;
};

// The grid named, or in the file, `name`. Names are looked for in `folder` if given, else beside an installed command
// and in the source tree. Throws UsageError when there is no such grid, files::FileError for a malformed one.
Grid load_grid(const std::string& name, const std::string& folder);

// A grid from JSON text; `source` is for messages. Throws files::FileError.
Grid parse_grid(const std::string& text, const std::string& source);

// Useful FLOPs of one forward call without lengths: 2 (D + Dv) per visible pair, over B and Hq.
double forward_flops(const GridProblem& problem);

// Halves Sq and Sk (never below 1) until a call has at most `most` FLOPs, and says so in the name.
void shrink(GridProblem& problem, double most);

}  // namespace tilewise::cli
