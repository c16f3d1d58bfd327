#pragma once

// The tensors of one forward call, owned, and how cases lay them out in memory.

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tilewise/attention.hpp"
#include "verify/random.hpp"
#include "verify/tensor.hpp"

namespace tilewise::verify {

struct Shape {
  std::int64_t b = 1;
  std::int64_t hq = 1;
  std::int64_t hkv = 1;
  std::int64_t sq = 1;
  std::int64_t sk = 1;
  std::int64_t d = 16;
  std::int64_t dv = -1;  // -1: like d

  [[nodiscard]] std::int64_t v_dim() const { return dv < 0 ? d : dv; }
};

// How a tensor [B, H, S, D] lies in its storage. Everything that is not an element is poison: all bits set, which is
// NaN in every floating type, `attend` in a mask and -1 in an integer.
enum class Layout : std::uint8_t {
  exact,             // row-major; the storage ends with the last element, so that a sanitizer sees every overrun
  contiguous,        // row-major, poison before and after
  bshd,              // stored [B, S, H, D]
  fused,             // a slice of [B, S, 3, H, D]
  padded_rows,       // rows 5 elements further apart than D, heads 3 rows further apart than S
  columns_apart,     // stored [B, H, D, S]: the last dimension's stride is S
  every_other,       // the last dimension's stride is 2, interleaved with poison
  reversed_rows,     // negative row stride
  reversed_columns,  // negative last stride
  off_by_one,        // row-major, 1 element past the storage's own alignment
  heads_last,        // stored [B, S, D, H]
};

const char* name_of(Layout layout);

// A tensor in that layout with all its elements zero. Ranks 1 to 3 are laid out as if dimensions of size 1 came first.
Tensor laid_out(DType dtype, const std::vector<std::int64_t>& shape, Layout layout);

// A tensor whose dimensions of stride 0 repeat: `repeated[d]` is whether dimension d does.
Tensor expanded(DType dtype, const std::vector<std::int64_t>& shape, const std::vector<bool>& repeated);

// Sets every element to value(flat).
void fill(Tensor& tensor, const std::function<double(std::int64_t flat)>& value);
void fill_normal(Tensor& tensor, Random& random, double deviation = 1, double mean = 0);
void fill_constant(Tensor& tensor, double value);

// The same values in another layout.
Tensor relaid(const Tensor& tensor, Layout layout);
// A float or integer vector, row-major and exact.
Tensor vector_of(DType dtype, const std::vector<double>& values);
// Elements `begin` to `end` of dimension `dimension`, copied.
Tensor sliced(const Tensor& tensor, std::size_t dimension, std::int64_t begin, std::int64_t end);

// The row-major number of an element of a tensor of rank 4.
std::int64_t flat_index(const Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d);

struct Call {
  Tensor q, k, v;
  Tensor o, lse;
  Tensor mask, bias, alibi_slopes, sinks, q_lengths, kv_lengths, cu_q, cu_k, block_table;
  AttentionOptions settings{};  // all but the tensors
  Device device{};

  ForwardTensors tensors();
  [[nodiscard]] AttentionOptions options() const;
};

// o and lse of a call's shape; lse has the precision of the statistics: float64 for float64, else float32.
void add_outputs(Call& call, Layout layout = Layout::contiguous);
DType statistics_dtype(DType dtype);

}  // namespace tilewise::verify
