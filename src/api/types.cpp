// Constructors of views.
#include "tilewise/types.hpp"

namespace tilewise {
namespace {

template <class View, class Pointer>
View row_major(Pointer data, DType dtype, std::initializer_list<std::int64_t> shape) {
  if (shape.size() > max_rank) {
    throw std::invalid_argument("shape: rank " + std::to_string(shape.size()) + " is above " +
                                std::to_string(max_rank));
  }
  View view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  std::size_t dimension = 0;
  for (const std::int64_t size : shape) view.shape[dimension++] = size;
  std::int64_t stride = 1;
  while (dimension-- > 0) {
    view.strides[dimension] = stride;
    stride *= view.shape[dimension] > 0 ? view.shape[dimension] : 1;
  }
  return view;
}

}  // namespace

TensorView contiguous_view(void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  return row_major<TensorView>(data, dtype, shape);
}

ConstTensorView contiguous_view(const void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  return row_major<ConstTensorView>(data, dtype, shape);
}

}  // namespace tilewise
