// Random problems (shapes, layouts, options, values) on every SIMD kernel of this machine: the precision rule against
// the oracle, a row alone against the row among neighbours, and poison where a row does not look.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cpu/isa.hpp"
#include "cpu/simd_kernels.hpp"
#include "tilewise/attention.hpp"
#include "verify/budget.hpp"
#include "verify/call.hpp"
#include "verify/oracle.hpp"

namespace tilewise {
namespace {

using verify::Call;
using verify::Layout;
using verify::Random;
using verify::RowIndex;
using verify::Shape;
using verify::Tensor;

// In [low, high].
std::int64_t between(Random& random, std::int64_t low, std::int64_t high) { return low + random.below(high - low + 1); }
std::int64_t pick(Random& random, std::initializer_list<std::int64_t> values) {
  return *(values.begin() + between(random, 0, static_cast<std::int64_t>(values.size()) - 1));
}
bool one_in(Random& random, std::int64_t n) { return between(random, 0, n - 1) == 0; }

struct Generated {
  Call call;
  Shape shape;
};

DType random_dtype(Random& random) {
  constexpr DType dtypes[] = {DType::float32, DType::float32, DType::float64, DType::float16, DType::bfloat16};
  return dtypes[between(random, 0, 4)];
}

Layout random_layout(Random& random) {
  constexpr Layout layouts[] = {Layout::exact,       Layout::contiguous,    Layout::bshd,
                                Layout::fused,       Layout::padded_rows,   Layout::columns_apart,
                                Layout::every_other, Layout::reversed_rows, Layout::reversed_columns,
                                Layout::off_by_one,  Layout::heads_last};
  return one_in(random, 2) ? Layout::exact : layouts[between(random, 0, 10)];
}

Tensor random_pairs(Random& random, DType dtype, const Shape& s) {
  std::vector<std::int64_t> shape{s.b, s.hq, s.sq, s.sk};
  std::vector<bool> repeated(4, false);
  for (std::size_t d = 0; d < 4; ++d) {
    if (one_in(random, 3)) repeated[d] = true;
  }
  if (one_in(random, 3)) {
    for (std::size_t d = 0; d < 4; ++d) {
      if (repeated[d]) shape[d] = 1;
    }
    return verify::laid_out(dtype, shape, one_in(random, 2) ? Layout::exact : Layout::every_other);
  }
  return verify::expanded(dtype, shape, repeated);
}

Generated generate(std::uint64_t seed) {
  Random random(seed);
  Generated g;
  Shape& s = g.shape;
  Call& call = g.call;
  s.hkv = between(random, 1, 2);
  s.hq = s.hkv * pick(random, {1, 1, 2, 3});
  s.b = between(random, 1, 2);
  s.sq = pick(random, {1, 2, 5, 15, 16, 17, 31, 33, 63, 64, 65, 80, 100, 129, 200});
  s.sk = pick(random, {1, 2, 7, 16, 33, 63, 64, 65, 95, 96, 97, 128, 193, 250, 300, 700, 1100});
  s.d = pick(random, {0, 1, 3, 4, 7, 8, 16, 17, 32, 40, 64, 72});
  s.dv = one_in(random, 3) ? pick(random, {1, 2, 5, 6, 8, 13, 24, 33}) : std::max<std::int64_t>(s.d, 1);
  const DType dtype = random_dtype(random);
  call.q = verify::laid_out(dtype, {s.b, s.hq, s.sq, s.d}, random_layout(random));
  call.k = verify::laid_out(dtype, {s.b, s.hkv, s.sk, s.d}, random_layout(random));
  call.v = verify::laid_out(dtype, {s.b, s.hkv, s.sk, s.v_dim()}, random_layout(random));
  const double spread = one_in(random, 4) ? 6 : 1;
  verify::fill_normal(call.q, random, spread);
  verify::fill_normal(call.k, random);
  verify::fill_normal(call.v, random, 1, one_in(random, 4) ? 20 : 0);
  if (one_in(random, 3)) call.settings.scale = random.normal() * 0.3;
  if (one_in(random, 12)) call.settings.scale = 0;
  if (one_in(random, 4)) call.settings.softcap = one_in(random, 2) ? 2.0 : 30.0;
  if (one_in(random, 2)) {
    Band& band = call.settings.band;
    if (one_in(random, 2)) {
      band.causal = true;
    } else {
      if (!one_in(random, 3)) band.left = between(random, -5, 70);
      if (!one_in(random, 3)) band.right = between(random, -5, 70);
    }
    if (one_in(random, 3)) {
      band.delta = between(random, -40, 40);
    } else {
      band.alignment = one_in(random, 2) ? Alignment::top_left : Alignment::bottom_right;
    }
    if (band.unbounded()) band = Band{};
  }
  if (one_in(random, 4)) {
    call.mask = random_pairs(random, DType::boolean, s);
    verify::fill(call.mask, [&](std::int64_t) { return one_in(random, 3) ? 0 : 1; });
  }
  if (one_in(random, 4)) {
    call.bias = random_pairs(random, one_in(random, 2) ? DType::float32 : dtype, s);
    verify::fill(call.bias, [&](std::int64_t) {
      return one_in(random, 5) ? -std::numeric_limits<double>::infinity() : random.normal();
    });
  }
  const auto some = [&](std::int64_t n, double low, double high) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(low + (high - low) * random.uniform());
    return values;
  };
  if (one_in(random, 5)) call.alibi_slopes = verify::vector_of(DType::float32, some(s.hq, 0.01, 0.5));
  if (one_in(random, 5)) call.sinks = verify::vector_of(DType::float32, some(s.hq, -2, 4));
  const auto lengths = [&](std::int64_t most) {
    std::vector<double> values;
    for (std::int64_t b = 0; b < s.b; ++b) values.push_back(static_cast<double>(between(random, 0, most)));
    return verify::vector_of(one_in(random, 2) ? DType::int32 : DType::int64, values);
  };
  if (one_in(random, 5)) call.q_lengths = lengths(s.sq);
  if (one_in(random, 5)) call.kv_lengths = lengths(s.sk);
  verify::add_outputs(call, random_layout(random));
  return g;
}

// Whether the kernel takes the problem at all.
bool takes(Call& call, const char* kernel) {
  ExecutionOptions execution;
  execution.kernel = kernel;
  return !explain(call.tensors(), call.options(), execution).chosen.empty();
}

void run(Call& call, const char* kernel, int threads = 1) {
  ExecutionOptions execution;
  execution.kernel = kernel;
  execution.max_threads = threads;
  attention_forward(call.tensors(), call.options(), execution);
}

class SimdKernels : public testing::TestWithParam<const Kernel*> {
 protected:
  void SetUp() override {
    Problem probe;
    probe.machine.features = cpu::cpu_features();
    if (const Verdict verdict = GetParam()->supports(probe); !verdict) GTEST_SKIP() << verdict.reason;
  }
};

std::vector<const Kernel*> forward_kernels() {
  std::vector<const Kernel*> kernels;
  for (const Kernel& kernel : cpu::simd_kernels()) kernels.push_back(&kernel);
  return kernels;
}

constexpr int problems = 400;

// The rule compares two rounding errors. On a few dozen rows the naive one can be small by luck: of 2400 problems two
// broke the rule itself, by 2 and 9%. So the naive error counts 1.25 times here; the conformance suite applies the rule
// as it stands.
double yardstick(double exact, double naive) { return std::isfinite(exact) ? exact + 1.25 * (naive - exact) : naive; }

TEST_P(SimdKernels, MeetThePrecisionRule) {
  int failures = 0;
  for (std::uint64_t seed = 0; seed < problems && failures < 5; ++seed) {
    Generated g = generate(seed);
    if (!takes(g.call, GetParam()->name)) continue;
    run(g.call, GetParam()->name);
    Random random(seed + 1000000);
    std::vector<RowIndex> rows;
    for (int n = 0; n < 48; ++n) {
      rows.push_back(
          {between(random, 0, g.shape.b - 1), between(random, 0, g.shape.hq - 1), between(random, 0, g.shape.sq - 1)});
    }
    std::vector<double> o, actual_o, lse, actual_lse;
    std::array<std::vector<double>, verify::sum_orders.size()> naive_o, naive_lse;
    for (const RowIndex row : rows) {
      const auto exact = verify::oracle_row(g.call.tensors(), g.call.options(), row);
      o.insert(o.end(), exact.o.begin(), exact.o.end());
      lse.push_back(exact.lse);
      for (std::size_t n = 0; n < verify::sum_orders.size(); ++n) {
        const auto naive = verify::naive_row(g.call.tensors(), g.call.options(), row, verify::sum_orders[n]);
        for (std::size_t c = 0; c < naive.o.size(); ++c) naive_o[n].push_back(yardstick(exact.o[c], naive.o[c]));
        naive_lse[n].push_back(yardstick(exact.lse, naive.lse));
      }
      for (std::int64_t c = 0; c < g.shape.v_dim(); ++c) {
        actual_o.push_back(g.call.o.get(((row.b * g.shape.hq + row.h) * g.shape.sq + row.i) * g.shape.v_dim() + c));
      }
      actual_lse.push_back(g.call.lse.get((row.b * g.shape.hq + row.h) * g.shape.sq + row.i));
    }
    const auto judged = verify::judge({.name = "o",
                                       .dtype = g.call.o.dtype(),
                                       .rows = rows,
                                       .columns = g.shape.v_dim(),
                                       .reference = o,
                                       .naive = {naive_o[0], naive_o[1], naive_o[2]},
                                       .actual = actual_o});
    const auto judged_lse = verify::judge({.name = "lse",
                                           .dtype = g.call.lse.dtype(),
                                           .rows = rows,
                                           .reference = lse,
                                           .naive = {naive_lse[0], naive_lse[1], naive_lse[2]},
                                           .actual = actual_lse,
                                           .is_logarithm = true});
    EXPECT_EQ(judged.failure, "") << "seed " << seed;
    EXPECT_EQ(judged_lse.failure, "") << "seed " << seed;
    failures += (judged.failure.empty() ? 0 : 1) + (judged_lse.failure.empty() ? 0 : 1);
  }
}

std::vector<std::byte> bytes_of(const Tensor& o, const Tensor& lse) {
  std::vector<std::byte> all = o.storage();
  all.insert(all.end(), lse.storage().begin(), lse.storage().end());
  return all;
}

TEST_P(SimdKernels, GiveTheSameBitsForAnyNumberOfThreads) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Generated g = generate(seed);
    if (!takes(g.call, GetParam()->name)) continue;
    run(g.call, GetParam()->name, 1);
    const auto once = bytes_of(g.call.o, g.call.lse);
    run(g.call, GetParam()->name, 2);
    EXPECT_EQ(once, bytes_of(g.call.o, g.call.lse)) << "seed " << seed;
  }
}

// Whether query (b, h, i) sees key j, from the definition.
bool sees(const Call& call, const Shape& s, RowIndex row, std::int64_t j) {
  const auto length = [&](const Tensor& lengths, std::int64_t all) {
    return lengths.present() ? static_cast<std::int64_t>(lengths.get(row.b)) : all;
  };
  const std::int64_t q_len = length(call.q_lengths, s.sq);
  const std::int64_t k_len = length(call.kv_lengths, s.sk);
  if (row.i >= q_len || j >= k_len) return false;
  const Band& band = call.settings.band;
  std::int64_t delta = 0;
  if (band.delta) delta = *band.delta;
  if (band.alignment == Alignment::bottom_right) delta = k_len - q_len;
  if (band.left && j < row.i + delta - *band.left) return false;
  if (band.right && j > row.i + delta + *band.right) return false;
  if (band.causal && j > row.i + delta) return false;
  const auto at = [&](const Tensor& t) {
    const auto& shape = t.shape();
    const auto index = [&](std::size_t d, std::int64_t x) { return shape[d] == 1 ? 0 : x; };
    return t.get(verify::flat_index(t, index(0, row.b), index(1, row.h), index(2, row.i), index(3, j)));
  };
  if (call.mask.present() && at(call.mask) == 0) return false;
  return !call.bias.present() || at(call.bias) != -std::numeric_limits<double>::infinity();
}

TEST_P(SimdKernels, NeverLetAnInvisibleKeyTouchARow) {
  for (std::uint64_t seed = 0; seed < problems; ++seed) {
    Generated g = generate(seed);
    if (!takes(g.call, GetParam()->name)) continue;
    const Shape& s = g.shape;
    Random random(seed + 2000000);
    const RowIndex row{between(random, 0, s.b - 1), between(random, 0, s.hq - 1), between(random, 0, s.sq - 1)};
    const std::int64_t kv_head = row.h / (s.hq / s.hkv);
    const auto with = [&](double k, double v) {
      for (std::int64_t j = 0; j < s.sk; ++j) {
        if (sees(g.call, s, row, j)) continue;
        for (std::int64_t d = 0; d < s.d; ++d) g.call.k.set(((row.b * s.hkv + kv_head) * s.sk + j) * s.d + d, k);
        for (std::int64_t d = 0; d < s.v_dim(); ++d) {
          g.call.v.set(((row.b * s.hkv + kv_head) * s.sk + j) * s.v_dim() + d, v);
        }
      }
      run(g.call, GetParam()->name);
      std::vector<double> result;
      const std::int64_t flat = (row.b * s.hq + row.h) * s.sq + row.i;
      for (std::int64_t c = 0; c < s.v_dim(); ++c) result.push_back(g.call.o.get(flat * s.v_dim() + c));
      result.push_back(g.call.lse.get(flat));
      return result;
    };
    const auto zeros = with(0, 0);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    for (const auto& poison : {std::pair{nan, nan}, std::pair{inf, -inf}, std::pair{0.0, nan}, std::pair{-inf, 0.0}}) {
      const auto poisoned = with(poison.first, poison.second);
      ASSERT_EQ(std::memcmp(zeros.data(), poisoned.data(), zeros.size() * sizeof(double)), 0)
          << "seed " << seed << " poison " << poison.first << ", " << poison.second << " row " << row.b << " " << row.h
          << " " << row.i;
    }
  }
}

TEST_P(SimdKernels, GiveARowTheSameBitsAloneAndAmongNeighbours) {
  for (std::uint64_t seed = 0; seed < problems; ++seed) {
    Generated g = generate(seed);
    if (!takes(g.call, GetParam()->name)) continue;
    const Shape& s = g.shape;
    if (g.call.q_lengths.present()) continue;
    run(g.call, GetParam()->name);
    Random random(seed + 3000000);
    const std::int64_t begin = between(random, 0, s.sq - 1);
    const std::int64_t end = between(random, begin + 1, s.sq);
    Call part = g.call;
    part.q = verify::sliced(g.call.q, 2, begin, end);
    const auto cut = [&](const Tensor& t) {
      return t.present() && t.shape()[2] > 1 ? verify::sliced(t, 2, begin, end) : t;
    };
    part.mask = cut(g.call.mask);
    part.bias = cut(g.call.bias);
    if (g.call.kv_lengths.present() && part.settings.band.alignment == Alignment::bottom_right) continue;
    Band& band = part.settings.band;
    if (!band.unbounded() || g.call.alibi_slopes.present()) {
      if (g.call.alibi_slopes.present()) continue;  // its delta is one of the bottom right corner
      const std::int64_t delta = band.delta.value_or(band.alignment == Alignment::bottom_right ? s.sk - s.sq : 0);
      band.alignment.reset();
      band.delta = delta + begin;
    }
    verify::add_outputs(part);
    run(part, GetParam()->name);
    for (std::int64_t bh = 0; bh < s.b * s.hq; ++bh) {
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t c = 0; c < s.v_dim(); ++c) {
          const double a = g.call.o.get((bh * s.sq + i) * s.v_dim() + c);
          const double b = part.o.get((bh * (end - begin) + i - begin) * s.v_dim() + c);
          ASSERT_EQ(std::memcmp(&a, &b, sizeof a), 0)
              << "seed " << seed << " row " << i << " of " << begin << ", " << end;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, SimdKernels, testing::ValuesIn(forward_kernels()), [](const auto& tested) {
  std::string name = tested.param->name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace tilewise
