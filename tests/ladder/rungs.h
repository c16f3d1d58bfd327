#pragma once

// Every rung as one function (inputs, blocks, causal) -> O, so that each property is tested on all of them.

#include <functional>
#include <string>
#include <vector>

#include "ladder/definition.h"
#include "reference/blockwise_attention.h"
#include "reference/one_query_attention.h"
#include "reference/online_softmax.h"
#include "reference/split_and_merge.h"
#include "reference/standard_attention.h"

namespace tilewise::ladder_test {

template <class T>
struct TypedInputs {
  Matrix<T> Q;
  Matrix<T> K;
  Matrix<T> V;
};

template <class T>
TypedInputs<T> typed(const Inputs& in) {
  return {converted<T>(in.Q), converted<T>(in.K), converted<T>(in.V)};
}

template <class T>
Matrix<T> first_rows(const Matrix<T>& x, Index rows) {
  Matrix<T> result(rows, x.columns());
  std::copy(x.data(), x.data() + rows * x.columns(), result.data());
  return result;
}

template <class T>
Matrix<T> one_row(const Matrix<T>& x, Index row) {
  Matrix<T> result(1, x.columns());
  std::copy(x.data() + row * x.columns(), x.data() + (row + 1) * x.columns(), result.data());
  return result;
}

// Attention from online_softmax, which sees only rows of scores: the scores are those of the standard rung.
template <class T>
Matrix<T> attention_by_online_softmax(const TypedInputs<T>& in, Index block, bool causal) {
  const auto standard = reference::standard_attention(in.Q, in.K, in.V, causal);
  const Index N = in.K.rows();
  Matrix<T> O(N, in.V.columns());
  for (Index i = 0; i < N; ++i) {
    const Index visible = causal ? i + 1 : N;
    Matrix<T> scores(1, visible);
    for (Index j = 0; j < visible; ++j) scores(0, j) = standard.S(i, j);
    const Matrix<T> p = reference::online_softmax(scores, block);
    for (Index j = 0; j < visible; ++j) {
      for (Index d = 0; d < in.V.columns(); ++d) O(i, d) += p(0, j) * in.V(j, d);
    }
  }
  return O;
}

// one_query_attention has no mask: a causal query is asked about the keys up to its own.
template <class T>
Matrix<T> attention_by_single_queries(const TypedInputs<T>& in, Index block, bool causal) {
  const Index N = in.K.rows();
  Matrix<T> O(N, in.V.columns());
  for (Index i = 0; i < N; ++i) {
    const Index visible = causal ? i + 1 : N;
    const Matrix<T> o =
        reference::one_query_attention(one_row(in.Q, i), first_rows(in.K, visible), first_rows(in.V, visible), block);
    for (Index d = 0; d < in.V.columns(); ++d) O(i, d) = o(0, d);
  }
  return O;
}

// Key ranges of `part_size` keys, merged from left to right.
template <class T>
Matrix<T> attention_by_parts(const TypedInputs<T>& in, Index part_size, Index key_block, bool causal) {
  const Index N = in.K.rows();
  auto all = reference::partial_attention(in.Q, in.K, in.V, 0, 0, key_block, causal);
  for (Index begin = 0; begin < N; begin += part_size) {
    const Index end = std::min(N, begin + part_size);
    all = reference::merge(all, reference::partial_attention(in.Q, in.K, in.V, begin, end, key_block, causal));
  }
  return reference::normalise(all);
}

template <class T>
struct Rung {
  std::string name;
  Blocks blocks;
  std::function<Matrix<T>(const TypedInputs<T>&, BlockPair, bool)> run;
};

template <class T>
std::vector<Rung<T>> rungs() {
  using In = TypedInputs<T>;
  return {
      {"standard_attention", Blocks::none,
       [](const In& in, BlockPair, bool causal) { return reference::standard_attention(in.Q, in.K, in.V, causal).O; }},
      {"online_softmax", Blocks::keys,
       [](const In& in, BlockPair blocks, bool causal) {
         return attention_by_online_softmax(in, blocks.key_block, causal);
       }},
      {"one_query_attention", Blocks::keys,
       [](const In& in, BlockPair blocks, bool causal) {
         return attention_by_single_queries(in, blocks.key_block, causal);
       }},
      {"blockwise_attention", Blocks::both,
       [](const In& in, BlockPair blocks, bool causal) {
         return reference::blockwise_attention(in.Q, in.K, in.V, blocks.query_block, blocks.key_block, causal);
       }},
      {"split_and_merge", Blocks::both,
       [](const In& in, BlockPair blocks, bool causal) {
         return attention_by_parts(in, blocks.query_block, blocks.key_block, causal);
       }},
  };
}

}  // namespace tilewise::ladder_test
