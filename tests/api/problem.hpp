#pragma once

// A small valid float32 problem with owned memory, whose views tests bend one at a time.

#include <cstdint>
#include <limits>
#include <vector>

#include "tilewise/attention.hpp"

namespace tilewise::test {

struct SmallProblem {
  std::int64_t batch = 2, q_heads = 4, kv_heads = 2, q_len = 5, kv_len = 7, head_dim = 8, v_dim = 6;
  std::vector<float> q, k, v, o, lse;
  ForwardTensors tensors;
  AttentionOptions options;

  SmallProblem() {
    const auto fill = [](std::vector<float>& values, std::int64_t count) {
      values.resize(static_cast<std::size_t>(count));
      for (std::size_t n = 0; n < values.size(); ++n) values[n] = static_cast<float>((n * 37 + 11) % 19) * 0.1F - 0.9F;
    };
    fill(q, batch * q_heads * q_len * head_dim);
    fill(k, batch * kv_heads * kv_len * head_dim);
    fill(v, batch * kv_heads * kv_len * v_dim);
    o.assign(static_cast<std::size_t>(batch * q_heads * q_len * v_dim), sentinel);
    lse.assign(static_cast<std::size_t>(batch * q_heads * q_len), sentinel);
    tensors.q = contiguous_view(static_cast<const void*>(q.data()), DType::float32, {batch, q_heads, q_len, head_dim});
    tensors.k =
        contiguous_view(static_cast<const void*>(k.data()), DType::float32, {batch, kv_heads, kv_len, head_dim});
    tensors.v = contiguous_view(static_cast<const void*>(v.data()), DType::float32, {batch, kv_heads, kv_len, v_dim});
    tensors.o = contiguous_view(static_cast<void*>(o.data()), DType::float32, {batch, q_heads, q_len, v_dim});
    tensors.lse = contiguous_view(static_cast<void*>(lse.data()), DType::float32, {batch, q_heads, q_len});
  }

  [[nodiscard]] bool untouched() const {
    for (const float x : o) {
      if (x != sentinel) return false;
    }
    for (const float x : lse) {
      if (x != sentinel) return false;
    }
    return true;
  }

  static constexpr float sentinel = -12345.0F;
};

template <class T>
ConstTensorView vector_view(const std::vector<T>& values, DType dtype) {
  return contiguous_view(static_cast<const void*>(values.data()), dtype, {static_cast<std::int64_t>(values.size())});
}

}  // namespace tilewise::test
