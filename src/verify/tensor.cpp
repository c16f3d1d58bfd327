#include "verify/tensor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace tilewise::verify {
namespace {

// A 16-bit binary format: sign, exponent field, mantissa field, as in IEEE 754.
struct SmallFormat {
  int mantissa_bits;
  int min_exponent;         // of the smallest normal number
  std::uint16_t infinity;   // its bits
  std::uint16_t quiet_bit;  // top bit of the mantissa
};
constexpr SmallFormat half{10, -14, 0x7C00, 0x0200};
constexpr SmallFormat brain{7, -126, 0x7F80, 0x0040};

std::uint16_t encode(const SmallFormat& format, double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | format.infinity | format.quiet_bit);
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | format.infinity);
  if (magnitude == 0) return sign;

  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  exponent = std::max(exponent - 1, format.min_exponent);
  // In units of the last place the value is exact, and rounding is on an integer.
  const double units = std::ldexp(magnitude, format.mantissa_bits - exponent);
  const double below = std::floor(units);
  const double rest = units - below;
  const bool odd = std::fmod(below, 2.0) != 0;
  const double rounded = rest > 0.5 || (rest == 0.5 && odd) ? below + 1 : below;
  // The implicit bit of a normal number and a carry out of the mantissa both count up the exponent field.
  const double code = std::ldexp(exponent - format.min_exponent, format.mantissa_bits) + rounded;
  return static_cast<std::uint16_t>(sign | (code >= format.infinity ? format.infinity : static_cast<unsigned>(code)));
}

double decode(const SmallFormat& format, std::uint16_t bits) {
  const int field = (bits & 0x7FFF) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  double magnitude = 0;
  if ((bits & format.infinity) == format.infinity) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (field == 0) {
    magnitude = std::ldexp(mantissa, format.min_exponent - format.mantissa_bits);
  } else {
    // Built from its bits: this is the oracle's innermost load.
    const int double_field = field - 1 + format.min_exponent + 1023;
    magnitude = std::bit_cast<double>((static_cast<std::uint64_t>(double_field) << 52) |
                                      (static_cast<std::uint64_t>(mantissa) << (52 - format.mantissa_bits)));
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
T load(const void* data, std::int64_t offset) {
  return static_cast<const T*>(data)[offset];
}

template <class T>
void store(void* data, std::int64_t offset, T value) {
  static_cast<T*>(data)[offset] = value;
}

template <class T>
T to_integer(double value) {
  constexpr auto low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto high = static_cast<double>(std::numeric_limits<T>::max());  // 2^63 for int64: one above the maximum
  const double rounded = std::round(value);
  if (!(rounded > low)) return std::numeric_limits<T>::min();
  if (rounded >= high) return std::numeric_limits<T>::max();
  return static_cast<T>(rounded);
}

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t dimension = shape.size(); dimension-- > 0;) {
    strides[dimension] = stride;
    stride *= std::max<std::int64_t>(shape[dimension], 1);
  }
  return strides;
}

template <class View, class Data>
View make_view(Data data, DType dtype, const std::vector<std::int64_t>& shape,
               const std::vector<std::int64_t>& strides) {
  if (shape.size() > max_rank) {
    throw std::invalid_argument("tensor: rank " + std::to_string(shape.size()) + " is above " +
                                std::to_string(max_rank));
  }
  View view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  for (std::size_t dimension = 0; dimension < shape.size(); ++dimension) {
    view.shape[dimension] = shape[dimension];
    view.strides[dimension] = strides[dimension];
  }
  return view;
}

}  // namespace

std::uint16_t to_float16_bits(double value) { return encode(half, value); }
std::uint16_t to_bfloat16_bits(double value) { return encode(brain, value); }
double from_float16_bits(std::uint16_t bits) { return decode(half, bits); }
double from_bfloat16_bits(std::uint16_t bits) { return decode(brain, bits); }

double load_as_double(const void* data, DType dtype, std::int64_t offset) {
  switch (dtype) {
    case DType::float64: return load<double>(data, offset);
    case DType::float32: return static_cast<double>(load<float>(data, offset));
    case DType::float16: return decode(half, load<std::uint16_t>(data, offset));
    case DType::bfloat16: return decode(brain, load<std::uint16_t>(data, offset));
    case DType::boolean: return load<std::uint8_t>(data, offset) != 0 ? 1 : 0;
    case DType::int32: return load<std::int32_t>(data, offset);
    case DType::int64: return static_cast<double>(load<std::int64_t>(data, offset));
  }
  return 0;
}

void store_from_double(void* data, DType dtype, std::int64_t offset, double value) {
  switch (dtype) {
    case DType::float64: return store(data, offset, value);
    case DType::float32: return store(data, offset, static_cast<float>(value));
    case DType::float16: return store(data, offset, encode(half, value));
    case DType::bfloat16: return store(data, offset, encode(brain, value));
    case DType::boolean: return store(data, offset, static_cast<std::uint8_t>(value != 0 ? 1 : 0));
    case DType::int32: return store(data, offset, to_integer<std::int32_t>(value));
    case DType::int64: return store(data, offset, to_integer<std::int64_t>(value));
  }
}

std::uint64_t load_bits(const void* data, DType dtype, std::int64_t offset) {
  switch (size_of(dtype)) {
    case 8: return load<std::uint64_t>(data, offset);
    case 4: return load<std::uint32_t>(data, offset);
    case 2: return load<std::uint16_t>(data, offset);
    default: return load<std::uint8_t>(data, offset);
  }
}

void store_bits(void* data, DType dtype, std::int64_t offset, std::uint64_t bits) {
  switch (size_of(dtype)) {
    case 8: return store(data, offset, bits);
    case 4: return store(data, offset, static_cast<std::uint32_t>(bits));
    case 2: return store(data, offset, static_cast<std::uint16_t>(bits));
    default: return store(data, offset, static_cast<std::uint8_t>(bits));
  }
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::float64: return std::ldexp(1.0, -52);
    case DType::float32: return std::ldexp(1.0, -23);
    case DType::float16: return std::ldexp(1.0, -10);
    case DType::bfloat16: return std::ldexp(1.0, -7);
    default: throw std::invalid_argument(std::string("epsilon_of: ") + name_of(dtype) + " is not a floating type");
  }
}

double rounded_to(DType dtype, double value) {
  alignas(8) std::byte element[8]{};
  store_from_double(element, dtype, 0, value);
  return load_as_double(element, dtype, 0);
}

Tensor::Tensor(DType dtype, std::vector<std::int64_t> shape)
    : present_(true), dtype_(dtype), shape_(std::move(shape)), strides_(row_major_strides(shape_)) {
  storage_.resize(static_cast<std::size_t>(element_count()) * size_of(dtype));
}

Tensor::Tensor(DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides,
               std::int64_t storage_elements, std::int64_t storage_offset)
    : present_(true),
      dtype_(dtype),
      shape_(std::move(shape)),
      strides_(std::move(strides)),
      storage_offset_(storage_offset),
      storage_(static_cast<std::size_t>(storage_elements) * size_of(dtype)) {}

Tensor Tensor::over(const TensorView& view) {
  Tensor tensor;
  tensor.present_ = view.present();
  tensor.dtype_ = view.dtype;
  tensor.shape_.assign(view.shape.begin(), view.shape.begin() + view.rank);
  tensor.strides_.assign(view.strides.begin(), view.strides.begin() + view.rank);
  tensor.borrowed_ = static_cast<std::byte*>(view.data);
  return tensor;
}

std::int64_t Tensor::element_count() const {
  if (!present_) return 0;
  std::int64_t count = 1;
  for (const std::int64_t size : shape_) count *= size;
  return count;
}

std::int64_t Tensor::offset_of(std::int64_t flat) const {
  std::int64_t offset = 0;
  for (std::size_t dimension = shape_.size(); dimension-- > 0;) {
    offset += flat % shape_[dimension] * strides_[dimension];
    flat /= shape_[dimension];
  }
  return offset;
}

const std::byte* Tensor::data() const {
  if (borrowed_ != nullptr) return borrowed_;
  return storage_.data() + storage_offset_ * static_cast<std::int64_t>(size_of(dtype_));
}

std::byte* Tensor::data() { return const_cast<std::byte*>(std::as_const(*this).data()); }

double Tensor::get(std::int64_t flat) const { return load_as_double(data(), dtype_, offset_of(flat)); }
void Tensor::set(std::int64_t flat, double value) { store_from_double(data(), dtype_, offset_of(flat), value); }
std::uint64_t Tensor::bits(std::int64_t flat) const { return load_bits(data(), dtype_, offset_of(flat)); }
void Tensor::set_bits(std::int64_t flat, std::uint64_t bits) { store_bits(data(), dtype_, offset_of(flat), bits); }

TensorView Tensor::view() {
  if (!present_) return {};
  return make_view<TensorView>(data(), dtype_, shape_, strides_);
}

ConstTensorView Tensor::view() const {
  if (!present_) return {};
  return make_view<ConstTensorView>(data(), dtype_, shape_, strides_);
}

}  // namespace tilewise::verify
