#pragma once

// An owning tensor for the command line and the tests: any dtype, any strides, values read and written as double.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tilewise/types.hpp"

namespace tilewise::verify {

// Conversions of their own, so that a bug in the kernels' conversions cannot hide here. Round to nearest, ties to even.
std::uint16_t to_float16_bits(double value);
std::uint16_t to_bfloat16_bits(double value);
double from_float16_bits(std::uint16_t bits);
double from_bfloat16_bits(std::uint16_t bits);

// Element `offset` (in elements, may be negative) from `data`, and its writing counterpart. Integers are rounded to the
// nearest and clamped to their type; a non-zero value makes a boolean true.
double load_as_double(const void* data, DType dtype, std::int64_t offset);
void store_from_double(void* data, DType dtype, std::int64_t offset, double value);

// The element's bits, zero-extended: equality that tells NaNs and signed zeros apart.
std::uint64_t load_bits(const void* data, DType dtype, std::int64_t offset);
void store_bits(void* data, DType dtype, std::int64_t offset, std::uint64_t bits);

// Distance from 1 to the next larger value of a floating type.
double epsilon_of(DType dtype);
// `value` rounded to a floating type and back.
double rounded_to(DType dtype, double value);

class Tensor {
 public:
  Tensor() = default;                                    // absent
  Tensor(DType dtype, std::vector<std::int64_t> shape);  // row-major, zeros
  Tensor(DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, std::int64_t storage_elements,
         std::int64_t storage_offset);  // strided over storage of its own, zeros
  // Over memory of somebody else, which must outlive it. `storage()` is then empty.
  static Tensor over(const TensorView& view);

  [[nodiscard]] bool present() const { return present_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  [[nodiscard]] const std::vector<std::int64_t>& strides() const { return strides_; }
  [[nodiscard]] std::int64_t element_count() const;  // product of the shape

  // `flat` counts in row-major order of the shape, whatever the strides.
  [[nodiscard]] double get(std::int64_t flat) const;
  void set(std::int64_t flat, double value);
  [[nodiscard]] std::uint64_t bits(std::int64_t flat) const;
  void set_bits(std::int64_t flat, std::uint64_t bits);

  // Absent tensors give absent views. Throws std::invalid_argument when the rank exceeds max_rank.
  [[nodiscard]] std::int64_t storage_offset() const { return storage_offset_; }  // elements
  [[nodiscard]] TensorView view();
  [[nodiscard]] ConstTensorView view() const;

  [[nodiscard]] std::vector<std::byte>& storage() { return storage_; }
  [[nodiscard]] const std::vector<std::byte>& storage() const { return storage_; }

 private:
  [[nodiscard]] std::int64_t offset_of(std::int64_t flat) const;
  [[nodiscard]] const std::byte* data() const;
  [[nodiscard]] std::byte* data();

  bool present_ = false;
  DType dtype_ = DType::float32;
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
  std::int64_t storage_offset_ = 0;
  std::vector<std::byte> storage_;
  std::byte* borrowed_ = nullptr;  // address of element 0 when the memory is somebody else's
};

}  // namespace tilewise::verify
