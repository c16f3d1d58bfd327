#pragma once

// Blocks of keys wait for one another, so with few queries over many keys all cores but a few stand idle.
//
// Computes: O = softmax(Q K^T / sqrt(D)) V from partial results over disjoint ranges of keys, in any order.
// Idea: (m, l, u) says all that a range of keys has to say. Two parts merge like two blocks of one row: both are
// brought to the larger maximum and added. Merging is associative and commutative, up to rounding.
// Cost: for each merge two exponentials a row and 3 (D + 1) operations; a part is (D + 2) numbers a row.

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/matrix.h"

namespace tilewise::reference {

// What N queries know of a set of keys. A row that has seen no key is {lowest finite number, 0, 0}: its weight in a
// merge is multiplied into zeros, so it changes nothing, and with a finite m no difference below is inf - inf.
// [excerpt: part]
template <class T>
struct Part {
  Matrix<T> m;  // [N, 1], the largest score
  Matrix<T> l;  // [N, 1], the sum of exp(score - m)
  Matrix<T> u;  // [N, D], the sum of exp(score - m) * value
};
// [end]

// The part of keys [key_begin, key_end), which may be empty. Q, K, V are [N, D] with N, D >= 1, key_block >= 1.
template <class T>
Part<T> partial_attention(const Matrix<T>& Q, const Matrix<T>& K, const Matrix<T>& V, Index key_begin, Index key_end,
                          Index key_block, bool causal) {
  const Index N = Q.rows();
  const Index D = K.columns();
  const T scale = 1 / std::sqrt(static_cast<T>(D));

  Matrix<T> m(N, 1, std::numeric_limits<T>::lowest());
  Matrix<T> l(N, 1);
  Matrix<T> u(N, D);
  // [excerpt: key_range]
  for (Index key_start = key_begin; key_start < key_end; key_start += key_block) {
    const Index keys = std::min(key_block, key_end - key_start);
    // [end]
    Matrix<T> S(N, keys);
    for (Index i = 0; i < N; ++i) {
      const Index visible = causal ? std::clamp<Index>(i + 1 - key_start, 0, keys) : keys;
      T m_new = m(i, 0);
      for (Index j = 0; j < visible; ++j) {
        T s = 0;
        for (Index d = 0; d < D; ++d) s += Q(i, d) * K(key_start + j, d);
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
    }
  }
  return {m, l, u};
}

// [excerpt: merge]
template <class T>
Part<T> merge(const Part<T>& a, const Part<T>& b) {
  Part<T> both = a;
  for (Index i = 0; i < a.m.rows(); ++i) {
    const T m_new = std::max(a.m(i, 0), b.m(i, 0));
    const T alpha = std::exp(a.m(i, 0) - m_new);
    const T beta = std::exp(b.m(i, 0) - m_new);
    both.m(i, 0) = m_new;
    both.l(i, 0) = alpha * a.l(i, 0) + beta * b.l(i, 0);
    for (Index d = 0; d < a.u.columns(); ++d) both.u(i, d) = alpha * a.u(i, d) + beta * b.u(i, d);
  }
  return both;
}
// [end]

// [N, D]. A row that saw a key has l >= 1, since its largest score weighs exp(0); one that saw none becomes 0.
template <class T>
Matrix<T> normalise(const Part<T>& part) {
  Matrix<T> O(part.u.rows(), part.u.columns());
  for (Index i = 0; i < O.rows(); ++i) {
    for (Index d = 0; d < O.columns(); ++d) O(i, d) = part.u(i, d) / std::max(part.l(i, 0), T(1));
  }
  return O;
}

}  // namespace tilewise::reference

// Still wasted: every multiply-add stands alone, its operands fetched from memory and not from registers.
