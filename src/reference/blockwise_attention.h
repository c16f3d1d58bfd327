#pragma once

// All of K and V is read from memory again for every query.
//
// Computes: O = softmax(Q K^T / sqrt(D)) V. Causal: query i sees keys 0 to i.
// Idea: query_block queries share each block of keys while it is at hand, every row with an m, l and u of its own.
// Under a causal mask the key loop ends with the last key that the last query of the block sees.
// Cost: the arithmetic of standard attention, but K and V are read N / query_block times and no N x N matrix exists;
// (D + 2) numbers a row of the query block and one tile of scores.

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/matrix.h"

namespace tilewise::reference {

// Q, K, V are [N, D] with N, D >= 1, both block sizes >= 1; the last blocks may be shorter. The result is [N, D].
template <class T>
Matrix<T> blockwise_attention(const Matrix<T>& Q, const Matrix<T>& K, const Matrix<T>& V, Index query_block,
                              Index key_block, bool causal) {
  const Index N = K.rows();
  const Index D = K.columns();
  const T scale = 1 / std::sqrt(static_cast<T>(D));

  Matrix<T> O(N, D);
  for (Index query_start = 0; query_start < N; query_start += query_block) {
    const Index rows = std::min(query_block, N - query_start);
    Matrix<T> m(rows, 1, std::numeric_limits<T>::lowest());
    Matrix<T> l(rows, 1);
    Matrix<T> u(rows, D);
    // [excerpt: key_loop]
    const Index key_end = causal ? query_start + rows : N;
    for (Index key_start = 0; key_start < key_end; key_start += key_block) {
      const Index keys = std::min(key_block, N - key_start);
      // [end]
      Matrix<T> S(rows, keys);
      for (Index i = 0; i < rows; ++i) {
        // [excerpt: mask]
        // Row i of the tile is query query_start + i of the sequence; of the tile's keys it sees the first `visible`.
        const Index visible = causal ? std::clamp<Index>(query_start + i + 1 - key_start, 0, keys) : keys;
        // [end]

        // [excerpt: row]
        T m_new = m(i, 0);
        for (Index j = 0; j < visible; ++j) {
          T s = 0;
          for (Index d = 0; d < D; ++d) s += Q(query_start + i, d) * K(key_start + j, d);
          S(i, j) = s * scale;
          m_new = std::max(m_new, S(i, j));
        }

        const T alpha = std::exp(m(i, 0) - m_new);
        m(i, 0) = m_new;
        l(i, 0) *= alpha;
        for (Index d = 0; d < D; ++d) u(i, d) *= alpha;

        for (Index j = 0; j < visible; ++j) {
          const T p = std::exp(S(i, j) - m(i, 0));
          l(i, 0) += p;
          for (Index d = 0; d < D; ++d) u(i, d) += p * V(key_start + j, d);
        }
        // [end]
      }
    }

    for (Index i = 0; i < rows; ++i) {
      for (Index d = 0; d < D; ++d) O(query_start + i, d) = u(i, d) / l(i, 0);
    }
  }
  return O;
}

}  // namespace tilewise::reference

// Still wasted: blocks of keys wait for one another, so with few queries over many keys all cores but a few stand idle.
