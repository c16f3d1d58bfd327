#pragma once

// The row of scores is kept to the end and read twice, only because its weights are wanted one by one.
//
// Computes: o = softmax(q K^T / sqrt(D)) V for one query.
// Idea: attention wants only the weighted sum of values. Keep it unnormalised in u, in the same units as l; what
// corrects l corrects u. A block of scores is dropped as soon as it is used, and the answer is u / l.
// Cost: 4 N D floating-point operations, one exponential a score and one a block; m, l, u and one block of scores.

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/matrix.h"

namespace tilewise::reference {

// q is [1, D], K and V are [N, D] with N, D >= 1, block_size >= 1; the last block may be shorter. The result is [1, D].
template <class T>
Matrix<T> one_query_attention(const Matrix<T>& q, const Matrix<T>& K, const Matrix<T>& V, Index block_size) {
  const Index N = K.rows();
  const Index D = K.columns();
  const T scale = 1 / std::sqrt(static_cast<T>(D));

  T m = std::numeric_limits<T>::lowest();
  T l = 0;
  Matrix<T> u(1, D);
  for (Index key_start = 0; key_start < N; key_start += block_size) {
    const Index keys = std::min(block_size, N - key_start);
    Matrix<T> S(1, keys);

    // [excerpt: scores]
    T m_new = m;
    for (Index j = 0; j < keys; ++j) {
      T s = 0;
      for (Index d = 0; d < D; ++d) s += q(0, d) * K(key_start + j, d);
      S(0, j) = s * scale;
      m_new = std::max(m_new, S(0, j));
    }
    // [end]

    // [excerpt: rescale]
    const T alpha = std::exp(m - m_new);
    m = m_new;
    l *= alpha;
    for (Index d = 0; d < D; ++d) u(0, d) *= alpha;
    // [end]

    // [excerpt: accumulate]
    for (Index j = 0; j < keys; ++j) {
      const T p = std::exp(S(0, j) - m);
      l += p;
      for (Index d = 0; d < D; ++d) u(0, d) += p * V(key_start + j, d);
    }
    // [end]
  }

  // [excerpt: normalise]
  Matrix<T> o(1, D);
  for (Index d = 0; d < D; ++d) o(0, d) = u(0, d) / l;
  // [end]
  return o;
}

}  // namespace tilewise::reference

// Still wasted: all of K and V is read from memory again for every query.
