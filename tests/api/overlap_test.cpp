// The overlap search against brute force on random small layouts, and the layouts that users really have.

#include "api/overlap.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>
#include <vector>

namespace tilewise::api {
namespace {

std::vector<std::int64_t> byte_offsets(const ConstTensorView& t) {
  std::vector<std::int64_t> offsets{0};
  for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t base : offsets) {
      for (std::int64_t n = 0; n < t.shape[d]; ++n) next.push_back(base + n * t.strides[d]);
    }
    offsets = next;
  }
  for (std::int64_t& offset : offsets) offset *= static_cast<std::int64_t>(size_of(t.dtype));
  return offsets;
}

std::vector<const char*> bytes_of(const ConstTensorView& t) {
  std::vector<const char*> bytes;
  for (const std::int64_t offset : byte_offsets(t)) {
    for (std::size_t n = 0; n < size_of(t.dtype); ++n) bytes.push_back(static_cast<const char*>(t.data) + offset + n);
  }
  return bytes;
}

class Layouts {
 public:
  ConstTensorView next() {
    static constexpr DType dtypes[] = {DType::float32, DType::float16, DType::boolean, DType::float64};
    ConstTensorView t;
    t.dtype = dtypes[pick(0, 3)];
    t.rank = pick(1, 4);
    for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
      t.shape[d] = pick(0, 9) == 0 ? 0 : pick(1, 4);
      t.strides[d] = pick(-9, 9);
    }
    t.data = base_ + pick(-20, 20) * 8;
    return t;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::mt19937 random_{7};
  const char* base_ = reinterpret_cast<const char*>(0x100000);
};

TEST(Overlap, PairsAgreeWithBruteForce) {
  Layouts layouts;
  int shared = 0;
  for (int n = 0; n < 20000; ++n) {
    const ConstTensorView a = layouts.next();
    const ConstTensorView b = layouts.next();
    const std::vector<const char*> bytes_a = bytes_of(a);
    const std::vector<const char*> bytes_b = bytes_of(b);
    const std::set<const char*> set(bytes_a.begin(), bytes_a.end());
    bool expected = false;
    for (const char* byte : bytes_b) expected = expected || set.count(byte) > 0;
    shared += expected ? 1 : 0;
    ASSERT_EQ(share_elements(a, b), expected) << n;
    ASSERT_EQ(share_elements(b, a), expected) << n;
  }
  EXPECT_GT(shared, 1000);
  EXPECT_LT(shared, 19000);
}

TEST(Overlap, SelfOverlapAgreesWithBruteForce) {
  Layouts layouts;
  int overlapping = 0;
  for (int n = 0; n < 20000; ++n) {
    const ConstTensorView t = layouts.next();
    const std::vector<const char*> bytes = bytes_of(t);
    const bool expected = std::set<const char*>(bytes.begin(), bytes.end()).size() != bytes.size();
    overlapping += expected ? 1 : 0;
    ASSERT_EQ(overlaps_itself(t), expected) << n;
  }
  EXPECT_GT(overlapping, 1000);
  EXPECT_LT(overlapping, 19000);
}

TEST(Overlap, InterleavedSlicesOfFusedQkvAreDisjoint) {
  constexpr std::int64_t batch = 3, length = 1000, heads = 16, dim = 64;
  std::vector<float> fused(batch * length * 3 * heads * dim);
  const auto slice = [&](std::int64_t part) {
    ConstTensorView t;
    t.data = fused.data() + part * heads * dim;
    t.rank = 4;
    t.shape = {batch, heads, length, dim};
    t.strides = {length * 3 * heads * dim, dim, 3 * heads * dim, 1};
    return t;
  };
  EXPECT_FALSE(share_elements(slice(0), slice(1)));
  EXPECT_FALSE(share_elements(slice(2), slice(0)));
  EXPECT_TRUE(share_elements(slice(1), slice(1)));
  EXPECT_FALSE(overlaps_itself(slice(1)));
  ConstTensorView wider = slice(0);
  wider.shape[3] = dim + 1;  // one column into the next head
  EXPECT_TRUE(overlaps_itself(wider));
}

// Found by fuzzing: in bytes such a stride overflows.
TEST(Overlap, TheStrideAlongOneRowMayBeAnything) {
  std::vector<double> memory(8);
  ConstTensorView even;
  even.data = memory.data();
  even.dtype = DType::float64;
  even.rank = 2;
  even.shape = {1, 4};
  even.strides = {std::numeric_limits<std::int64_t>::max(), 2};
  ConstTensorView odd = even;
  odd.data = memory.data() + 1;
  EXPECT_FALSE(share_elements(even, odd));
  EXPECT_TRUE(share_elements(even, even));
  EXPECT_FALSE(overlaps_itself(even));
}

}  // namespace
}  // namespace tilewise::api
