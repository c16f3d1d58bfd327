#include "verify/call.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tilewise::verify {
namespace {

constexpr std::int64_t margin = 19;  // elements of poison on either side; odd, so that vectors do not end there

// Strides and the offset of element 0 inside an allocation without margins.
struct Placement {
  std::array<std::int64_t, 4> strides{};
  std::int64_t offset = 0;
};

Placement placement_of(const std::array<std::int64_t, 4>& shape, Layout layout) {
  const auto [b, h, s, d] = shape;
  switch (layout) {
    case Layout::exact:
    case Layout::contiguous:
    case Layout::off_by_one: return {{h * s * d, s * d, d, 1}, 0};
    case Layout::bshd: return {{s * h * d, d, h * d, 1}, 0};
    case Layout::fused: return {{s * 3 * h * d, d, 3 * h * d, 1}, h * d};
    case Layout::padded_rows: return {{h * (s + 3) * (d + 5), (s + 3) * (d + 5), d + 5, 1}, 0};
    case Layout::columns_apart: return {{h * s * d, s * d, 1, s}, 0};
    case Layout::every_other: return {{h * s * 2 * d, s * 2 * d, 2 * d, 2}, 0};
    case Layout::reversed_rows: return {{h * s * d, s * d, -d, 1}, (s - 1) * d};
    case Layout::reversed_columns: return {{h * s * d, s * d, d, -1}, d - 1};
    case Layout::heads_last: return {{s * d * h, 1, d * h, h}, 0};
  }
  return {};
}

// Lowest and highest offset that an element of the shape has, relative to element 0.
std::pair<std::int64_t, std::int64_t> reach(const std::vector<std::int64_t>& shape,
                                            const std::vector<std::int64_t>& strides) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (std::size_t dimension = 0; dimension < shape.size(); ++dimension) {
    const std::int64_t last = (shape[dimension] - 1) * strides[dimension];
    (last < 0 ? low : high) += last;
  }
  return {low, high};
}

Tensor placed(DType dtype, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
              std::int64_t before, std::int64_t after) {
  const bool empty = std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size == 0; });
  const auto [low, high] = empty ? std::pair<std::int64_t, std::int64_t>{0, -1} : reach(shape, strides);
  Tensor tensor(dtype, shape, strides, before + high - low + 1 + after, before - low);
  std::fill(tensor.storage().begin(), tensor.storage().end(), std::byte{0xFF});
  fill_constant(tensor, 0);
  return tensor;
}

}  // namespace

const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::exact: return "exact storage";
    case Layout::contiguous: return "contiguous";
    case Layout::bshd: return "[B, S, H, D]";
    case Layout::fused: return "fused QKV";
    case Layout::padded_rows: return "padded rows";
    case Layout::columns_apart: return "columns apart";
    case Layout::every_other: return "every other element";
    case Layout::reversed_rows: return "reversed rows";
    case Layout::reversed_columns: return "reversed columns";
    case Layout::off_by_one: return "off by one";
    case Layout::heads_last: return "heads last";
  }
  return "";
}

Tensor laid_out(DType dtype, const std::vector<std::int64_t>& shape, Layout layout) {
  std::array<std::int64_t, 4> full{1, 1, 1, 1};
  std::copy(shape.begin(), shape.end(), full.end() - static_cast<std::ptrdiff_t>(shape.size()));
  const Placement placement = placement_of(full, layout);
  const std::vector<std::int64_t> strides(placement.strides.end() - static_cast<std::ptrdiff_t>(shape.size()),
                                          placement.strides.end());
  if (layout == Layout::exact) return placed(dtype, shape, strides, 0, 0);
  if (layout == Layout::off_by_one) return placed(dtype, shape, strides, 1, 0);
  return placed(dtype, shape, strides, margin, margin);
}

Tensor expanded(DType dtype, const std::vector<std::int64_t>& shape, const std::vector<bool>& repeated) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t dimension = shape.size(); dimension-- > 0;) {
    strides[dimension] = repeated[dimension] ? 0 : stride;
    if (!repeated[dimension]) stride *= shape[dimension];
  }
  return placed(dtype, shape, strides, margin, margin);
}

void fill(Tensor& tensor, const std::function<double(std::int64_t flat)>& value) {
  const std::int64_t count = tensor.element_count();
  for (std::int64_t flat = 0; flat < count; ++flat) tensor.set(flat, value(flat));
}

void fill_normal(Tensor& tensor, Random& random, double deviation, double mean) {
  fill(tensor, [&](std::int64_t) { return mean + deviation * random.normal(); });
}

void fill_constant(Tensor& tensor, double value) {
  fill(tensor, [value](std::int64_t) { return value; });
}

Tensor relaid(const Tensor& tensor, Layout layout) {
  Tensor copy = laid_out(tensor.dtype(), tensor.shape(), layout);
  for (std::int64_t flat = 0; flat < tensor.element_count(); ++flat) copy.set_bits(flat, tensor.bits(flat));
  return copy;
}

Tensor vector_of(DType dtype, const std::vector<double>& values) {
  Tensor tensor(dtype, {static_cast<std::int64_t>(values.size())});
  fill(tensor, [&](std::int64_t flat) { return values[static_cast<std::size_t>(flat)]; });
  return tensor;
}

Tensor sliced(const Tensor& tensor, std::size_t dimension, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> shape = tensor.shape();
  std::int64_t inner = 1;
  for (std::size_t d = dimension + 1; d < shape.size(); ++d) inner *= shape[d];
  const std::int64_t from = shape[dimension];
  const std::int64_t to = end - begin;
  shape[dimension] = to;
  Tensor copy = laid_out(tensor.dtype(), shape, Layout::contiguous);
  for (std::int64_t flat = 0; flat < copy.element_count(); ++flat) {
    const std::int64_t outer = flat / (to * inner);
    const std::int64_t rest = flat % (to * inner);
    copy.set_bits(flat, tensor.bits(outer * from * inner + begin * inner + rest));
  }
  return copy;
}

std::int64_t flat_index(const Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
  const std::vector<std::int64_t>& shape = tensor.shape();
  return ((b * shape[1] + h) * shape[2] + s) * shape[3] + d;
}

ForwardTensors Call::tensors() {
  ForwardTensors views{std::as_const(q).view(), std::as_const(k).view(), std::as_const(v).view(), o.view(), lse.view()};
  for (ConstTensorView* view : {&views.q, &views.k, &views.v}) view->device = device;
  for (TensorView* view : {&views.o, &views.lse}) view->device = device;
  return views;
}

AttentionOptions Call::options() const {
  AttentionOptions options = settings;
  options.mask = mask.view();
  options.bias = bias.view();
  options.alibi_slopes = alibi_slopes.view();
  options.sinks = sinks.view();
  options.q_lengths = q_lengths.view();
  options.kv_lengths = kv_lengths.view();
  options.cu_q = cu_q.view();
  options.cu_k = cu_k.view();
  options.block_table = block_table.view();
  for (ConstTensorView* view : {&options.mask, &options.bias, &options.alibi_slopes, &options.sinks, &options.q_lengths,
                                &options.kv_lengths, &options.cu_q, &options.cu_k, &options.block_table}) {
    view->device = device;
  }
  return options;
}

DType statistics_dtype(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

void add_outputs(Call& call, Layout layout) {
  const std::vector<std::int64_t>& q = call.q.shape();
  call.o = laid_out(call.q.dtype(), {q[0], q[1], q[2], call.v.shape()[3]}, layout);
  call.lse = laid_out(statistics_dtype(call.q.dtype()), {q[0], q[1], q[2]}, Layout::contiguous);
}

}  // namespace tilewise::verify
