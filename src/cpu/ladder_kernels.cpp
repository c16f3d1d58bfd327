#include "cpu/ladder_kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "reference/blockwise_attention.h"
#include "reference/matrix.h"
#include "reference/one_query_attention.h"
#include "reference/online_softmax.h"
#include "reference/split_and_merge.h"
#include "reference/standard_attention.h"

namespace tilewise::cpu {
namespace {

using reference::Index;
using reference::Matrix;

constexpr Index block = 64;      // queries and keys of a block, where a rung has blocks
constexpr Index part_count = 4;  // ranges of keys that split_and_merge takes apart

bool contiguous(const TensorSpec& spec) {
  std::int64_t expected = 1;
  for (int d = spec.rank; d-- > 0;) {
    const auto at = static_cast<std::size_t>(d);
    if (spec.shape[at] > 1 && spec.strides[at] != expected) return false;
    expected *= spec.shape[at];
  }
  return true;
}

// The rungs' problem: one head, [N, D] contiguous, float32 or float64, full or causal, nothing else.
Verdict plain(const Problem& p) {
  if (p.pass != Pass::forward) return no("a rung computes the forward pass only");
  if (p.dtype != DType::float32 && p.dtype != DType::float64) return no("a rung takes float32 and float64 only");
  if (p.batch != 1 || p.q_heads != 1 || p.kv_heads != 1) return no("a rung takes one batch item and one head");
  if (p.q_len != p.kv_len || p.head_dim != p.v_dim) return no("a rung takes Sq = Sk and D = Dv");
  if (p.q_len < 1 || p.head_dim < 1) return no("a rung takes at least one row and one column");
  if (!contiguous(p.q) || !contiguous(p.k) || !contiguous(p.v) || !contiguous(p.o))
    return no("a rung takes contiguous tensors");
  if (p.lse.present()) return no("a rung returns no lse");
  if (p.mask.present() || p.bias.present() || p.alibi_slopes.present() || p.sinks.present()) {
    return no("a rung takes no mask, bias, ALiBi or sinks");
  }
  if (p.q_lengths.present() || p.kv_lengths.present() || p.packed_queries() || p.paged()) {
    return no("a rung takes no lengths, packed sequences or pages");
  }
  if (p.softcap != 0 || p.has_dropout) return no("a rung takes no softcap or dropout");
  if (p.scale != 1 / std::sqrt(static_cast<double>(p.head_dim))) return no("a rung scales by 1 / sqrt(D)");
  const bool causal = p.has_right && p.right == 0 && !p.has_left && (p.corner != core::corner_explicit || p.delta == 0);
  if (p.banded() && !causal) return no("a rung takes a causal mask or none");
  return yes();
}

Verdict plain_full(const Problem& p) {
  if (Verdict verdict = plain(p); !verdict) return verdict;
  return p.banded() ? no("this rung has no causal mask yet") : yes();
}

template <class T>
struct Inputs {
  Matrix<T> Q, K, V;
  bool causal;
};

template <class T>
Matrix<T> matrix_from(const void* data, const Problem& p) {
  Matrix<T> matrix(p.q_len, p.head_dim);
  std::copy_n(static_cast<const T*>(data), p.q_len * p.head_dim, matrix.data());
  return matrix;
}

// Runs `rung`, which turns Inputs<T> into O, on the problem's dtype.
template <class Rung>
void run_rung(const Problem& p, const Buffers& buffers, const Rung& rung) {
  const auto run_as = [&]<class T>(T) {
    const Inputs<T> inputs{matrix_from<T>(buffers.q, p), matrix_from<T>(buffers.k, p), matrix_from<T>(buffers.v, p),
                           p.banded()};
    const Matrix<T> O = rung(inputs);
    std::copy_n(O.data(), p.q_len * p.head_dim, static_cast<T*>(buffers.o));
  };
  if (p.dtype == DType::float64) return run_as(double{});
  run_as(float{});
}

void run_standard(const Problem& p, const Buffers& buffers, Execution&) {
  run_rung(p, buffers,
           []<class T>(const Inputs<T>& in) { return reference::standard_attention(in.Q, in.K, in.V, in.causal).O; });
}

// Standard attention whose softmax is the online one: the rung itself is a softmax of a row, not yet an attention.
void run_online_softmax(const Problem& p, const Buffers& buffers, Execution&) {
  run_rung(p, buffers, []<class T>(const Inputs<T>& in) {
    const Matrix<T> S = reference::standard_attention(in.Q, in.K, in.V, in.causal).S;
    Matrix<T> O(in.Q.rows(), in.Q.columns());
    for (Index i = 0; i < S.rows(); ++i) {
      Matrix<T> x(1, S.columns());
      std::copy_n(&S(i, 0), S.columns(), x.data());
      const Matrix<T> weights = reference::online_softmax(x, block);
      for (Index j = 0; j < S.columns(); ++j) {
        if (in.causal && j > i) continue;  // not 0 * V: an invisible NaN stays invisible
        for (Index d = 0; d < O.columns(); ++d) O(i, d) += weights(0, j) * in.V(j, d);
      }
    }
    return O;
  });
}

void run_one_query(const Problem& p, const Buffers& buffers, Execution&) {
  run_rung(p, buffers, []<class T>(const Inputs<T>& in) {
    Matrix<T> O(in.Q.rows(), in.Q.columns());
    for (Index i = 0; i < O.rows(); ++i) {
      Matrix<T> q(1, in.Q.columns());
      std::copy_n(&in.Q(i, 0), q.columns(), q.data());
      const Matrix<T> o = reference::one_query_attention(q, in.K, in.V, block);
      std::copy_n(o.data(), o.columns(), &O(i, 0));
    }
    return O;
  });
}

void run_blockwise(const Problem& p, const Buffers& buffers, Execution&) {
  run_rung(p, buffers, []<class T>(const Inputs<T>& in) {
    return reference::blockwise_attention(in.Q, in.K, in.V, block, block, in.causal);
  });
}

void run_split_and_merge(const Problem& p, const Buffers& buffers, Execution&) {
  run_rung(p, buffers, []<class T>(const Inputs<T>& in) {
    const Index N = in.K.rows();
    const auto part = [&](Index n) {
      return reference::partial_attention(in.Q, in.K, in.V, N * n / part_count, N * (n + 1) / part_count, block,
                                          in.causal);
    };
    reference::Part<T> whole = part(0);
    for (Index n = 1; n < part_count; ++n) whole = reference::merge(whole, part(n));
    return reference::normalise(whole);
  });
}

constexpr int only_forced(const Problem&) { return -1; }
constexpr std::size_t no_workspace(const Problem&, const Execution&) { return 0; }
TileShape everything(const Problem& p) {
  return {std::max<std::int64_t>(p.q_len, 1), std::max<std::int64_t>(p.kv_len, 1)};
}
TileShape row_of_blocks(const Problem&) { return {1, block}; }
TileShape square_blocks(const Problem&) { return {block, block}; }

constexpr std::array kernels{
    Kernel{"ladder.standard", plain, only_forced, everything, no_workspace, run_standard},
    Kernel{"ladder.online_softmax", plain, only_forced, everything, no_workspace, run_online_softmax},
    Kernel{"ladder.one_query", plain_full, only_forced, row_of_blocks, no_workspace, run_one_query},
    Kernel{"ladder.blockwise", plain, only_forced, square_blocks, no_workspace, run_blockwise},
    Kernel{"ladder.split_and_merge", plain, only_forced, square_blocks, no_workspace, run_split_and_merge},
};

}  // namespace

std::span<const Kernel> ladder_kernels() { return kernels; }

}  // namespace tilewise::cpu
