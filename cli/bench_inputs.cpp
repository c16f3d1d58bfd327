#include "bench_inputs.hpp"

#include <algorithm>
#include <cstring>

#include "verify/random.hpp"
#include "verify/tensor.hpp"

namespace tilewise::cli {
namespace {

constexpr std::uint64_t seed = 20260101;

void fill(const AlignedTensor& tensor, std::uint64_t stream) {
  verify::Random random(seed + stream);
  const TensorView view = tensor.view();
  for (std::int64_t i = 0; i < tensor.element_count(); ++i) {
    verify::store_from_double(view.data, view.dtype, i, random.normal());
  }
}

AttentionOptions plain_options(const GridProblem& problem) {
  AttentionOptions options;
  options.scale = problem.scale;
  options.softcap = problem.softcap;
  options.band.left = problem.left;
  options.band.right = problem.right;
  options.band.alignment = problem.alignment;
  return options;
}

}  // namespace

AlignedTensor::AlignedTensor(DType dtype, std::vector<std::int64_t> shape) : elements_(1) {
  for (const std::int64_t size : shape) elements_ *= size;
  const std::size_t bytes = static_cast<std::size_t>(elements_) * size_of(dtype);
  memory_.reset(static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 64), std::align_val_t{64})));
  std::memset(memory_.get(), 0, bytes);
  view_.data = memory_.get();
  view_.dtype = dtype;
  view_.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    view_.shape[i] = shape[i];
    view_.strides[i] = stride;
    stride *= shape[i];
  }
}

double input_bytes(const GridProblem& p) {
  const auto product = [](std::initializer_list<std::int64_t> sizes) {
    double total = 1;
    for (const std::int64_t size : sizes) total *= static_cast<double>(size);
    return total;
  };
  const double elements = product({p.batch, p.q_heads, p.q_len, p.head_dim + p.v_dim}) +
                          product({p.batch, p.kv_heads, p.kv_len, p.head_dim + p.v_dim});
  const double bias = p.bias ? product({p.bias_heads(), p.q_len, p.kv_len}) * sizeof(float) : 0;
  return elements * static_cast<double>(size_of(p.dtype)) + bias;
}

namespace {

// Slice `part` of a tensor [B, S, 3, H, D] as [B, H, S, D].
ConstTensorView fused_slice(const GridProblem& p, const void* data, std::int64_t part) {
  ConstTensorView view = contiguous_view(data, p.dtype, {p.batch, p.q_heads, p.q_len, p.head_dim});
  const std::int64_t width = p.q_heads * p.head_dim;
  view.strides = {p.q_len * 3 * width, p.head_dim, 3 * width, 1};
  if (data != nullptr) {
    view.data = static_cast<const std::byte*>(data) + part * width * static_cast<std::int64_t>(size_of(p.dtype));
  }
  return view;
}

void slice_fused(const GridProblem& p, const void* data, ForwardTensors& tensors) {
  tensors.q = fused_slice(p, data, 0);
  tensors.k = fused_slice(p, data, 1);
  tensors.v = fused_slice(p, data, 2);
}

}  // namespace

BenchInputs make_inputs(const GridProblem& p) {
  BenchInputs inputs;
  inputs.q = AlignedTensor(p.dtype, {p.batch, p.q_heads, p.q_len, p.head_dim});
  inputs.k = AlignedTensor(p.dtype, {p.batch, p.kv_heads, p.kv_len, p.head_dim});
  inputs.v = AlignedTensor(p.dtype, {p.batch, p.kv_heads, p.kv_len, p.v_dim});
  inputs.o = AlignedTensor(p.dtype, {p.batch, p.q_heads, p.q_len, p.v_dim});
  fill(inputs.q, 1);
  fill(inputs.k, 2);
  fill(inputs.v, 3);
  inputs.tensors = {.q = inputs.q.view(), .k = inputs.k.view(), .v = inputs.v.view(), .o = inputs.o.view(), .lse = {}};
  inputs.options = plain_options(p);
  if (p.fused) {
    inputs.fused = AlignedTensor(p.dtype, {p.batch, p.q_len, 3 * p.q_heads, p.head_dim});
    fill(inputs.fused, 1);
    slice_fused(p, inputs.fused.view().data, inputs.tensors);
  }
  if (p.key_mask) {
    inputs.mask = AlignedTensor(DType::boolean, {p.batch, 1, 1, p.kv_len});
    verify::Random random(seed + 7);
    auto* mask = static_cast<std::uint8_t*>(inputs.mask.view().data);
    for (std::int64_t n = 0; n < inputs.mask.element_count(); ++n) mask[n] = random.below(64) != 0;
    inputs.options.mask = inputs.mask.view();
  }
  if (p.sinks) {
    inputs.sinks = AlignedTensor(DType::float32, {p.q_heads});
    fill(inputs.sinks, 4);
    inputs.options.sinks = inputs.sinks.view();
  }
  if (p.bias) {
    inputs.bias = AlignedTensor(DType::float32, {1, p.bias_heads(), p.q_len, p.kv_len});
    fill(inputs.bias, 5);
    inputs.options.bias = inputs.bias.view();
  }
  if (p.ragged) {
    inputs.lengths = AlignedTensor(DType::int32, {p.batch});
    verify::Random random(seed + 6);
    auto* lengths = static_cast<std::int32_t*>(inputs.lengths.view().data);
    const std::int64_t longest = std::min(p.q_len, p.kv_len);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      lengths[b] = static_cast<std::int32_t>(longest - random.below(longest / 2 + 1));
    }
    inputs.options.q_lengths = inputs.options.kv_lengths = inputs.lengths.view();
  }
  return inputs;
}

BenchShapes shapes_of(const GridProblem& p) {
  const auto view = [](DType dtype, std::initializer_list<std::int64_t> shape) {
    return contiguous_view(static_cast<void*>(nullptr), dtype, shape);
  };
  BenchShapes shapes{.tensors = {.q = view(p.dtype, {p.batch, p.q_heads, p.q_len, p.head_dim}),
                                 .k = view(p.dtype, {p.batch, p.kv_heads, p.kv_len, p.head_dim}),
                                 .v = view(p.dtype, {p.batch, p.kv_heads, p.kv_len, p.v_dim}),
                                 .o = view(p.dtype, {p.batch, p.q_heads, p.q_len, p.v_dim}),
                                 .lse = {}},
                     .options = plain_options(p)};
  if (p.fused) slice_fused(p, nullptr, shapes.tensors);
  if (p.key_mask) shapes.options.mask = view(DType::boolean, {p.batch, 1, 1, p.kv_len});
  if (p.sinks) shapes.options.sinks = view(DType::float32, {p.q_heads});
  if (p.bias) shapes.options.bias = view(DType::float32, {1, p.bias_heads(), p.q_len, p.kv_len});
  if (p.ragged) shapes.options.q_lengths = shapes.options.kv_lengths = view(DType::int32, {p.batch});
  return shapes;
}

}  // namespace tilewise::cli
