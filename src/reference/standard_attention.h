#pragma once

// Attention is a softmax-weighted mean of values, one for each query.
//
// Computes: S = Q K^T / sqrt(D), P = softmax of every row of S, O = P V. Causal: query i sees keys 0 to i.
// Idea: the definition itself, one matrix after the other.
// Cost: 4 N^2 D floating-point operations (half when causal) and N^2 exponentials; S and P take 2 N^2 numbers.

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/matrix.h"

namespace tilewise::reference {

template <class T>
struct StandardAttention {
  Matrix<T> S;  // [N, N], -inf where the query does not see the key
  Matrix<T> P;  // [N, N], every row sums to 1
  Matrix<T> O;  // [N, D]
};

// Q, K, V are [N, D] with N, D >= 1.
template <class T>
StandardAttention<T> standard_attention(const Matrix<T>& Q, const Matrix<T>& K, const Matrix<T>& V, bool causal) {
  const Index N = K.rows();
  const Index D = K.columns();
  const T scale = 1 / std::sqrt(static_cast<T>(D));

  // [excerpt: scores]
  Matrix<T> S(N, N, -std::numeric_limits<T>::infinity());
  for (Index i = 0; i < N; ++i) {
    const Index visible = causal ? i + 1 : N;
    for (Index j = 0; j < visible; ++j) {
      T s = 0;
      for (Index d = 0; d < D; ++d) s += Q(i, d) * K(j, d);
      S(i, j) = s * scale;
    }
  }
  // [end]

  // [excerpt: softmax]
  Matrix<T> P(N, N);
  for (Index i = 0; i < N; ++i) {
    T m = std::numeric_limits<T>::lowest();
    for (Index j = 0; j < N; ++j) m = std::max(m, S(i, j));  // passes over a NaN; it gets into l through exp
    T l = 0;
    for (Index j = 0; j < N; ++j) {
      P(i, j) = std::exp(S(i, j) - m);
      l += P(i, j);
    }
    for (Index j = 0; j < N; ++j) P(i, j) /= l;
  }
  // [end]

  // Only visible values are touched: P is 0 elsewhere, but 0 times NaN is NaN.
  // [excerpt: values]
  Matrix<T> O(N, D);
  for (Index i = 0; i < N; ++i) {
    const Index visible = causal ? i + 1 : N;
    for (Index j = 0; j < visible; ++j) {
      for (Index d = 0; d < D; ++d) O(i, d) += P(i, j) * V(j, d);
    }
  }
  // [end]
  return {S, P, O};
}

}  // namespace tilewise::reference

// Still wasted: S and P, two N x N matrices, are stored although the softmax of a row needs only two numbers.
