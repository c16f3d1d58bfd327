// The oracle's own conversions and its strided tensors.
#include "verify/tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "verify/call.hpp"

namespace tilewise::verify {
namespace {

// Values of a 16-bit format by its definition: (-1)^s * 2^(e - bias) * 1.m, written without bit tricks.
double by_definition(unsigned bits, int mantissa_bits, int bias) {
  const int sign = (bits >> 15) != 0 ? -1 : 1;
  const int field_bits = 15 - mantissa_bits;
  const auto field = static_cast<int>((bits >> mantissa_bits) & ((1U << field_bits) - 1));
  const auto mantissa = static_cast<double>(bits & ((1U << mantissa_bits) - 1)) / std::pow(2.0, mantissa_bits);
  if (field == (1 << field_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (field == 0) return sign * mantissa * std::pow(2.0, 1 - bias);
  return sign * (1 + mantissa) * std::pow(2.0, field - bias);
}

struct Format {
  const char* name;
  int mantissa_bits;
  int bias;
  std::uint16_t (*encode)(double);
  double (*decode)(std::uint16_t);
};
const Format formats[] = {{"float16", 10, 15, to_float16_bits, from_float16_bits},
                          {"bfloat16", 7, 127, to_bfloat16_bits, from_bfloat16_bits}};

class Conversions : public testing::TestWithParam<Format> {};

TEST_P(Conversions, EveryValueIsReadByDefinitionAndComesBack) {
  const Format& f = GetParam();
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const double expected = by_definition(bits, f.mantissa_bits, f.bias);
    const double value = f.decode(stored);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(f.decode(f.encode(value)))) << bits;
      continue;
    }
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    ASSERT_EQ(f.encode(value), stored) << bits;
  }
}

TEST_P(Conversions, RoundToNearestTiesToEvenBetweenAllNeighbours) {
  const Format& f = GetParam();
  const unsigned infinity = ((1U << (15 - f.mantissa_bits)) - 1) << f.mantissa_bits;
  for (unsigned bits = 0; bits < infinity; ++bits) {
    const double low = by_definition(bits, f.mantissa_bits, f.bias);
    // Past the largest number stands what the next one would be.
    const double step = bits + 1 == infinity ? low - by_definition(bits - 1, f.mantissa_bits, f.bias)
                                             : by_definition(bits + 1, f.mantissa_bits, f.bias) - low;
    const double middle = low + step / 2;
    const unsigned even = bits % 2 == 0 ? bits : bits + 1;
    for (const unsigned sign : {0U, 0x8000U}) {
      const double s = sign == 0 ? 1 : -1;
      ASSERT_EQ(f.encode(s * middle), even | sign) << bits;
      ASSERT_EQ(f.encode(s * std::nextafter(middle, 0)), bits | sign) << bits;
      ASSERT_EQ(f.encode(s * std::nextafter(middle, 1e300)), (bits + 1) | sign) << bits;
      ASSERT_EQ(f.encode(s * (low + step / 4)), bits | sign) << bits;
    }
  }
}

TEST_P(Conversions, ExtremesOverflowAndUnderflow) {
  const Format& f = GetParam();
  const auto infinity = static_cast<std::uint16_t>(((1U << (15 - f.mantissa_bits)) - 1) << f.mantissa_bits);
  EXPECT_EQ(f.encode(1e300), infinity);
  EXPECT_EQ(f.encode(-1e300), infinity | 0x8000);
  EXPECT_EQ(f.encode(std::numeric_limits<double>::infinity()), infinity);
  EXPECT_EQ(f.encode(1e-300), 0);
  EXPECT_EQ(f.encode(-5e-324), 0x8000);
}

INSTANTIATE_TEST_SUITE_P(Formats, Conversions, testing::ValuesIn(formats),
                         [](const auto& format) { return std::string(format.param.name); });

TEST(Elements, AreStoredAndLoadedInEveryDtype) {
  for (const DType dtype :
       {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::int32, DType::int64}) {
    Tensor tensor(dtype, {3});
    tensor.set(1, -7);
    EXPECT_EQ(tensor.get(0), 0) << name_of(dtype);
    EXPECT_EQ(tensor.get(1), -7) << name_of(dtype);
  }
  Tensor mask(DType::boolean, {2});
  mask.set_bits(0, 0x80);
  EXPECT_EQ(mask.get(0), 1);
  EXPECT_EQ(mask.get(1), 0);
}

TEST(Tensors, EveryLayoutHoldsTheSameValuesAndTouchesNothingElse) {
  for (int n = 0; n <= static_cast<int>(Layout::heads_last); ++n) {
    const auto layout = static_cast<Layout>(n);
    Tensor tensor = laid_out(DType::float32, {2, 3, 4, 5}, layout);
    const auto poison = [&] {
      std::size_t bytes = 0;
      for (const std::byte byte : tensor.storage()) bytes += byte == std::byte{0xFF} ? 1 : 0;
      return bytes;
    };
    const std::size_t before = poison();
    EXPECT_EQ(before, tensor.storage().size() - 2 * 3 * 4 * 5 * 4) << name_of(layout);
    fill(tensor, [](std::int64_t flat) { return static_cast<double>(flat + 1); });
    EXPECT_EQ(poison(), before) << name_of(layout);
    for (std::int64_t flat = 0; flat < 120; ++flat) ASSERT_EQ(tensor.get(flat), flat + 1) << name_of(layout);
    const TensorView view = tensor.view();
    const std::int64_t offset = view.strides[0] + 2 * view.strides[1] + 3 * view.strides[2] + 4 * view.strides[3];
    EXPECT_EQ(static_cast<const float*>(view.data)[offset], 120) << name_of(layout);
  }
}

TEST(Tensors, RanksAboveFourHaveNoView) {
  Tensor tensor(DType::float32, {1, 1, 1, 1, 1});
  EXPECT_THROW(static_cast<void>(tensor.view()), std::invalid_argument);
  EXPECT_FALSE(Tensor().view().present());
}

TEST(Tensors, SlicesCopy) {
  Tensor tensor(DType::int32, {2, 3, 2});
  fill(tensor, [](std::int64_t flat) { return static_cast<double>(flat); });
  const Tensor middle = sliced(tensor, 1, 1, 3);
  const double expected[] = {2, 3, 4, 5, 8, 9, 10, 11};
  for (std::int64_t flat = 0; flat < 8; ++flat) EXPECT_EQ(middle.get(flat), expected[flat]);
}

}  // namespace
}  // namespace tilewise::verify
