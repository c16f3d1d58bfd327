// The micro-kernels of every instruction set of this machine against their definitions.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "core/softmax_rows.h"
#include "core/softmax_rules.h"
#include "cpu/isa.hpp"
#include "cpu/micro_fixture.hpp"
#include "kernel/float16.hpp"
#include "kernel/kernel.hpp"

namespace tilewise::micro {

std::vector<const Target*> targets() {
  std::vector<const Target*> all;
#if defined(__x86_64__)
  for (const Target* target : {&sse4, &avx2, &avx512}) {
    if ((cpu::cpu_features() & target->feature) != 0) all.push_back(target);
  }
#elif defined(__aarch64__)
  all.push_back(&neon);
#endif
  return all;
}

namespace {

using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Micro, Types);

TYPED_TEST(Micro, RecurrenceKeepsTheRules) {
  for (const Target* target : targets()) {
    const auto& f = functions_of<TypeParam>(*target);
    softmax_rules::SoftmaxTarget<TypeParam> softmax(target->name, static_cast<std::size_t>(f.lanes), f.softmax_step,
                                                    sizeof(TypeParam) == 4 ? TypeParam(3e-7) : TypeParam(1e-15));
    softmax_rules::check_softmax_rules(softmax);
    softmax_rules::check_softmax_rows(softmax);
  }
}

// Every row count that takes other panels, every number of live vectors; the order of the sum decides the bits.
TYPED_TEST(Micro, ScoresAreDotProductsInOrder) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(1);
    const std::int64_t width = f.vectors * f.lanes;
    for (const std::int64_t depth : {0, 1, 2, 7, 33}) {
      for (std::int64_t rows = 1; rows <= 14; ++rows) {
        for (int vectors = 1; vectors <= f.vectors; ++vectors) {
          const std::int64_t stride = depth + 3;
          Aligned<T> k(rows * stride), q(depth * width), s(rows * width);
          k.fill(random);
          q.fill(random);
          f.scores(rows, vectors, k.data(), stride, q.data(), depth, s.data());
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t lane = 0; lane < width; ++lane) {
              if (lane >= vectors * f.lanes) {
                EXPECT_TRUE(std::isnan(s[r * width + lane])) << "a dead vector was written";
                continue;
              }
              ExactSum dot;
              for (std::int64_t d = 0; d < depth; ++d) {
                dot.add(static_cast<double>(k[r * stride + d]) * static_cast<double>(q[d * width + lane]));
              }
              EXPECT_NEAR(s[r * width + lane], dot.value,
                          dot.size * std::numeric_limits<T>::epsilon() * static_cast<double>(depth + 1));
            }
          }
        }
      }
    }
  });
}

TYPED_TEST(Micro, ALaneOfScoresHasTheSameBitsInAnyPanel) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(2);
    const std::int64_t width = f.vectors * f.lanes;
    const std::int64_t depth = 50;
    Aligned<T> k(11 * depth), q(depth * width), all(11 * width), one(width);
    k.fill(random);
    q.fill(random);
    f.scores(11, f.vectors, k.data(), depth, q.data(), depth, all.data());
    for (std::int64_t r = 0; r < 11; ++r) {
      f.scores(1, 1, k.data() + r * depth, depth, q.data(), depth, one.data());
      EXPECT_EQ(std::memcmp(one.data(), all.data() + r * width, sizeof(T) * static_cast<std::size_t>(f.lanes)), 0);
    }
  });
}

TYPED_TEST(Micro, AccumulateAddsTheSegmentsOnly) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(3);
    const std::int64_t width = f.vectors * f.lanes;
    const std::int64_t keys = 40;
    std::vector<std::vector<Part>> cases{{{0, keys, 0, f.vectors}}, {}, {{3, 4, 0, 1}}};
    for (int first = 0; first < f.vectors; ++first) {
      for (int last = first + 1; last <= f.vectors; ++last) {
        cases.push_back({{0, 5, first, last}, {5, 17, 0, f.vectors}, {20, 33, 0, last}});
      }
    }
    for (std::int64_t columns = 1; columns <= 14; ++columns) {
      for (const auto& parts : cases) {
        const std::int64_t stride = columns + 1;
        Aligned<T> p(keys * width), v(keys * stride), alpha(width), o(columns * width), before(columns * width);
        p.fill(random);
        v.fill(random);
        alpha.fill(random);
        before.fill(random);
        std::memcpy(o.data(), before.data(), sizeof(T) * static_cast<std::size_t>(columns * width));
        f.accumulate(columns, p.data(), v.data(), stride, parts, alpha.data(), o.data());
        for (std::int64_t c = 0; c < columns; ++c) {
          for (std::int64_t lane = 0; lane < width; ++lane) {
            ExactSum sum;
            sum.add(static_cast<double>(alpha[lane]) * static_cast<double>(before[c * width + lane]));
            for (const Part& part : parts) {
              if (lane / f.lanes < part.first || lane / f.lanes >= part.last) continue;
              for (std::int64_t key = part.begin; key < part.end; ++key) {
                sum.add(static_cast<double>(p[key * width + lane]) * static_cast<double>(v[key * stride + c]));
              }
            }
            EXPECT_NEAR(o[c * width + lane], sum.value, sum.size * std::numeric_limits<T>::epsilon() * 42);
          }
        }
      }
    }
  });
}

TYPED_TEST(Micro, SelectionEqualsAccumulationAndIgnoresWhatIsInvisible) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(4);
    const std::int64_t width = f.vectors * f.lanes;
    const std::int64_t keys = 23;
    const std::int64_t columns = 9;
    Aligned<T> p(keys * width), seen(keys * width), v(keys * columns), alpha(width), o(columns * width),
        selected(columns * width);
    p.fill(random);
    v.fill(random);
    alpha.fill(random);
    o.fill(random);
    for (std::int64_t i = 0; i < keys * width; ++i) {
      seen[i] = i / width == 7 || random.below(3) == 0 ? T(0) : T(1);  // nobody sees key 7
      if (seen[i] == T(0)) p[i] = T(0);
    }
    std::memcpy(selected.data(), o.data(), sizeof(T) * static_cast<std::size_t>(columns * width));
    f.accumulate(columns, p.data(), v.data(), columns, {{0, keys, 0, f.vectors}}, alpha.data(), o.data());
    for (std::int64_t c = 0; c < columns; ++c) v[7 * columns + c] = std::numeric_limits<T>::quiet_NaN();
    f.accumulate_by_selection(columns, f.vectors, 0, keys, p.data(), seen.data(), v.data(), columns, alpha.data(),
                              selected.data());
    EXPECT_EQ(std::memcmp(o.data(), selected.data(), sizeof(T) * static_cast<std::size_t>(columns * width)), 0);
  });
}

TYPED_TEST(Micro, SoftmaxBlockStepsTheRecurrence) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(5);
    const std::int64_t width = f.vectors * f.lanes;
    for (const std::int64_t keys : {0, 1, 2, 3, 4, 5, 8, 31}) {
      for (const T unit : {T(1), T(0.18)}) {
        Aligned<T> s(keys * width + f.lanes), before(keys * width + f.lanes), m(f.lanes), l(f.lanes), alpha(f.lanes);
        before.fill(random);
        for (std::int64_t i = 0; i < keys; ++i)
          before[i * width] = -std::numeric_limits<T>::infinity();  // lane 0: none
        std::memcpy(s.data(), before.data(), sizeof(T) * static_cast<std::size_t>(keys * width + f.lanes));
        m.fill(T(0.5));
        l.fill(T(2));
        m[0] = std::numeric_limits<T>::lowest();
        l[0] = T(0);
        f.softmax_block(s.data(), 0, keys, unit, T(0), m.data(), l.data(), alpha.data());
        EXPECT_EQ(m[0], std::numeric_limits<T>::lowest());
        EXPECT_EQ(l[0], T(0));
        EXPECT_EQ(alpha[0], T(1));
        for (int lane = 1; lane < f.lanes; ++lane) {
          double largest = 0.5;
          for (std::int64_t i = 0; i < keys; ++i) {
            const auto score = static_cast<double>(before[i * width + lane]);
            if (score > largest) largest = score;  // g++ 12 for aarch64 fails on a reduction through std::fmax
          }
          const double shrink = std::exp2((0.5 - largest) * static_cast<double>(unit));
          double sum = 2 * shrink;
          for (std::int64_t i = 0; i < keys; ++i) {
            const double weight =
                std::exp2((static_cast<double>(before[i * width + lane]) - largest) * static_cast<double>(unit));
            EXPECT_NEAR(s[i * width + lane], weight, weight * (sizeof(T) == 4 ? 4e-7 : 1e-15));
            sum += weight;
          }
          EXPECT_EQ(static_cast<double>(m[lane]), largest);
          EXPECT_NEAR(l[lane], sum, sum * (sizeof(T) == 4 ? 1e-6 : 1e-14));
          EXPECT_NEAR(alpha[lane], shrink, shrink * (sizeof(T) == 4 ? 4e-7 : 1e-15));
        }
      }
    }
  });
}

TYPED_TEST(Micro, TransposesAreInverses) {
  using T = TypeParam;
  this->on_every_target([](const Functions<T>& f) {
    Random random(6);
    const std::int64_t width = f.vectors * f.lanes;
    for (std::int64_t columns = 0; columns <= 19; ++columns) {
      const std::int64_t stride = columns + 2;
      Aligned<T> rows(f.lanes * stride), lanes(columns * width), back(f.lanes * stride);
      rows.fill(random);
      f.rows_to_lanes(rows.data(), stride, columns, lanes.data());
      for (std::int64_t c = 0; c < columns; ++c) {
        for (int r = 0; r < f.lanes; ++r) EXPECT_EQ(lanes[c * width + r], rows[r * stride + c]);
      }
      f.lanes_to_rows(lanes.data(), columns, back.data(), stride);
      for (std::int64_t c = 0; c < stride; ++c) {
        for (int r = 0; r < f.lanes; ++r) {
          if (c < columns) {
            EXPECT_EQ(back[r * stride + c], rows[r * stride + c]);
          } else {
            EXPECT_TRUE(std::isnan(back[r * stride + c])) << "wrote between the rows";
          }
        }
      }
    }
  });
}

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// All 65536 values, by whole vectors and as a tail.
TEST(MicroConversions, WideningKeepsEveryValue) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  for (const Target* target : targets()) {
    SCOPED_TRACE(target->name);
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      for (const std::int64_t tail : {0, 1}) {
        std::vector<float> wide(65536);
        target->f32.load_rows(halves.data(), dtype, 0, 1, 1, 65536 - tail, wide.data(), 65536);
        for (std::size_t i = 0; i < 65536 - static_cast<std::size_t>(tail); ++i) {
          const float exact = dtype == DType::float16 ? to_float(Float16{halves[i]}) : to_float(BFloat16{halves[i]});
          if (std::isnan(exact)) {
            EXPECT_TRUE(std::isnan(wide[i])) << i;
          } else {
            EXPECT_EQ(bits(wide[i]), bits(exact)) << i;
          }
        }
      }
    }
  }
}

// Every 16-bit value, the halfway points between neighbours, and what lies just beside them.
TEST(MicroConversions, NarrowingRoundsToNearestEven) {
  std::vector<float> wide;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    for (const float value :
         {to_float(Float16{static_cast<std::uint16_t>(i)}), to_float(BFloat16{static_cast<std::uint16_t>(i)})}) {
      wide.push_back(value);
    }
  }
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low : {0x7fffU, 0x8000U, 0x8001U})
      wide.push_back(std::bit_cast<float>((high << 16) | low));
  }
  for (std::uint32_t i = 0; i + 1 < 0x7c00; ++i) {
    const float middle =
        (to_float(Float16{static_cast<std::uint16_t>(i)}) + to_float(Float16{static_cast<std::uint16_t>(i + 1)})) / 2;
    for (const float value : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F), -middle})
      wide.push_back(value);
  }
  for (const float value : {65504.0F, 65519.9961F, 65520.0F, 65536.0F, 1e30F}) wide.push_back(value);
  const auto n = static_cast<std::int64_t>(wide.size());
  std::vector<std::uint16_t> narrow(wide.size());
  for (const Target* target : targets()) {
    SCOPED_TRACE(target->name);
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      target->f32.store_row(wide.data(), n, narrow.data(), dtype, 1);
      for (std::size_t i = 0; i < wide.size(); ++i) {
        const std::uint16_t exact = dtype == DType::float16 ? to_float16(wide[i]).bits : to_bfloat16(wide[i]).bits;
        if (std::isnan(wide[i])) {
          const float back = dtype == DType::float16 ? to_float(Float16{narrow[i]}) : to_float(BFloat16{narrow[i]});
          EXPECT_TRUE(std::isnan(back)) << wide[i];
        } else {
          EXPECT_EQ(narrow[i], exact) << name_of(dtype) << " of " << wide[i];
        }
      }
    }
  }
}

TEST(MicroConversions, RowsAreGatheredFromAnyStrides) {
  const std::int64_t n = 200;
  std::vector<float> floats(static_cast<std::size_t>(n));
  std::vector<std::uint8_t> flags(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    floats[static_cast<std::size_t>(i)] = static_cast<float>(i);
    flags[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i % 3 == 0 ? 0 : 255 - i);
  }
  for (const Target* target : targets()) {
    for (const std::int64_t row : {0, 1, 20, -20}) {
      for (const std::int64_t column : {0, 1, 2, -1}) {
        float to[3 * 19];
        double wide[3 * 19];
        float boolean[3 * 19];
        target->f32.load_rows(floats.data() + 100, DType::float32, row, column, 3, 17, to, 19);
        target->f64.load_rows(floats.data() + 100, DType::float32, row, column, 3, 17, wide, 19);
        target->f32.load_rows(flags.data() + 100, DType::boolean, row, column, 3, 17, boolean, 19);
        for (std::int64_t r = 0; r < 3; ++r) {
          for (std::int64_t c = 0; c < 17; ++c) {
            const std::int64_t at = 100 + r * row + c * column;
            EXPECT_EQ(to[r * 19 + c], static_cast<float>(at));
            EXPECT_EQ(wide[r * 19 + c], static_cast<double>(at));
            EXPECT_EQ(boolean[r * 19 + c], at % 3 == 0 ? 0.0F : 1.0F);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilewise::micro
