#pragma once

// Exact attention in linear memory. The whole contract of the forward pass:
//
//   s[i, j] = scale * q_i . k_j;  s = c * tanh(s / c) if softcap;  s += bias + alibi;  s = -inf where not visible
//   p[i, :] = softmax(s[i, :]) (over the keys, and the sink's logit if any);  o_i = sum_j p[i, j] v_j
//
// Shapes (any strides, in elements; 0 and negative allowed for inputs):
//   q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv], o [B, Hq, Sq, Dv], lse [B, Hq, Sq] (optional)
// q, k, v, o share one dtype (float64, float32, float16, bfloat16); lse is float32, float64 for float64 inputs.
// Query head h uses KV head h / (Hq / Hkv).
//
//   - Visible means: inside the band AND mask AND bias is not -inf AND inside the lengths.
//   - A query that sees no key: o = 0, lse = -inf (lse = sink if a sink is given). Padding rows: o = 0, lse = -inf.
//   - lse is the natural logarithm of the sum of exp(s), sinks included, dropout not.
//   - NaN in a visible input reaches the output. A key that a query does not see never influences it, whatever bits it
//     holds, nor do the neighbours of a row in a tile.
//   - float32 in means float32 accuracy out. 16-bit inputs keep scores, softmax state and accumulators in float32.
//   - Every repeat gives the same bits. On CPUs item (b, h) has the same bits in any batch and for any number of
//   threads,
//     given the same kernel. Bits may differ between machines and releases.
//   - Zero-size dimensions are legal. 64-bit offsets everywhere.
//
// Errors: every argument is checked before anything is written. std::invalid_argument names the argument, what it is
// and what was expected; Unsupported says why no kernel takes the problem; DeviceError reports a failing device. Inputs
// may alias each other (v may be a view of k). Outputs may not share an element with an input or an output.
//
// All functions may be called from many threads at once.
//
// Sources: Milakov and Gimelshein 2018 (online softmax); Dao et al. 2022, FlashAttention, algorithm 1; Dao 2023,
// FlashAttention-2, section 3.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tilewise/export.hpp"
#include "tilewise/types.hpp"
#include "tilewise/version.hpp"

namespace tilewise {

/// The version of the linked library, e.g. "0.1.0".
TILEWISE_API const char* version();

/// The tensors of one forward call. `lse` may be absent.
struct ForwardTensors {
  ConstTensorView q;  // [B, Hq, Sq, D]; packed: [1, Hq, Tq, D]
  ConstTensorView k;  // [B, Hkv, Sk, D]; packed: [1, Hkv, Tk, D]; paged: [num_pages, Hkv, page_size, D]
  ConstTensorView v;  // [B, Hkv, Sk, Dv]; packed and paged like k
  TensorView o;       // [B, Hq, Sq, Dv]; packed: [1, Hq, Tq, Dv]
  TensorView lse{};   // [B, Hq, Sq]; packed: [1, Hq, Tq]; may be absent
};

/// The tensors of one backward call: o and lse as the forward left them.
struct BackwardTensors {
  ConstTensorView q, k, v, o, lse, d_o;
  TensorView dq, dk, dv;
};

/// Computes o (and lse). See the contract at the top of this file.
TILEWISE_API void attention_forward(const ForwardTensors& tensors, const AttentionOptions& options = {},
                                    const ExecutionOptions& execution = {});

/// The gradients dq, dk, dv. Not built yet: throws Unsupported.
TILEWISE_API void attention_backward(const BackwardTensors& tensors, const AttentionOptions& options = {},
                                     const ExecutionOptions& execution = {});

/// One part of an attention result over a subset of the keys: o [B, Hq, Sq, Dv] with its lse [B, Hq, Sq].
struct PartialResult {
  ConstTensorView o;
  ConstTensorView lse;
};

/// Merges two results over disjoint key ranges. Not built yet: throws Unsupported.
TILEWISE_API void attention_merge(const PartialResult& first, const PartialResult& second, TensorView o, TensorView lse,
                                  const ExecutionOptions& execution = {});

/// Bytes of workspace that attention_forward needs with these arguments; they may have null data.
TILEWISE_API std::size_t workspace_size(const ForwardTensors& tensors, const AttentionOptions& options = {},
                                        const ExecutionOptions& execution = {});

/// Why a kernel did not take a problem.
struct Refusal {
  std::string kernel;
  std::string reason;
};

/// What would happen: which kernel runs, which refused and why, and how much work there is.
struct Explanation {
  std::string chosen;              ///< name of the kernel that would run; empty when every kernel refused
  std::vector<Refusal> refused;    ///< kernels that cannot take the problem
  std::vector<std::string> ready;  ///< kernels that could, best first; the chosen one is the first
  std::int64_t tiles_visited = 0;  ///< tiles of the chosen kernel in which some query sees some key, over B and Hq
  std::int64_t tiles_total = 0;    ///< all of its tiles
  double flops = 0;                ///< useful: 2 * (D + Dv) per visible (query, key) pair, band and lengths counted
  double bytes = 0;                ///< q, k, v, o and lse, each once
};

/// Explains a call without running it. Tensors may have null data; lengths and offsets then count as full.
/// Throws std::invalid_argument as attention_forward would; a problem that no kernel takes is explained, not thrown.
TILEWISE_API Explanation explain(const ForwardTensors& tensors, const AttentionOptions& options = {},
                                 const ExecutionOptions& execution = {});

/// The names of all kernels built into this library, in order of the backends.
TILEWISE_API std::vector<std::string> kernel_names();

/// A call that is checked and chosen once and run many times, on tensors of the same shapes, strides and dtypes.
/// With a workspace of workspace_size() bytes, `run` allocates nothing.
class TILEWISE_API Plan {
 public:
  explicit Plan(const ForwardTensors& tensors, const AttentionOptions& options = {},
                const ExecutionOptions& execution = {});
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// The name of the kernel that was chosen.
  [[nodiscard]] const char* kernel() const;
  [[nodiscard]] std::size_t workspace_size() const;

  /// Runs on other addresses. Throws std::invalid_argument, before anything is written, when a shape, stride, dtype or
  /// presence differs from the plan's, when an address is null or less aligned than planned, when outputs overlap, and
  /// when lengths, offsets or pages are out of range. The options' tensors are taken from `options` in the same way.
  void run(const ForwardTensors& tensors, const AttentionOptions& options,
           const ExecutionOptions& execution = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilewise
