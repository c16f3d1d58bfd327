#pragma once

// S and P, two N x N matrices, are stored although the softmax of a row needs only two numbers.
//
// Computes: p = softmax(x) of one row of scores.
// Idea: read the row in blocks and keep its running maximum m and the running sum l of exp(x - m). When a block raises
// m, every term of l was measured against the old maximum; one factor, exp(m_old - m_new), corrects all of them.
// Cost: 2 exponentials a score and one a block; m and l, and the row itself, for the second pass.

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/matrix.h"

namespace tilewise::reference {

// x is [1, N] with N >= 1, block_size >= 1; the last block may be shorter.
template <class T>
Matrix<T> online_softmax(const Matrix<T>& x, Index block_size) {
  const Index N = x.columns();

  // The lowest finite number, not -inf: then m - m_new below is never (-inf) - (-inf), and nothing needs a guard.
  T m = std::numeric_limits<T>::lowest();
  T l = 0;
  for (Index key_start = 0; key_start < N; key_start += block_size) {
    const Index keys = std::min(block_size, N - key_start);

    // [excerpt: rescale]
    T m_new = m;
    for (Index j = 0; j < keys; ++j) m_new = std::max(m_new, x(0, key_start + j));
    const T alpha = std::exp(m - m_new);  // 0 in the first block, 1 when the maximum stays
    m = m_new;
    l *= alpha;
    for (Index j = 0; j < keys; ++j) l += std::exp(x(0, key_start + j) - m);
    // [end]
  }

  // [excerpt: revisit]
  Matrix<T> p(1, N);
  for (Index j = 0; j < N; ++j) p(0, j) = std::exp(x(0, j) - m) / l;
  // [end]
  return p;
}

}  // namespace tilewise::reference

// Still wasted: the row of scores is kept to the end and read twice, only because its weights are wanted one by one.
