// Sinks, ALiBi, softcap and dropout.
#include <cmath>

#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

Tensor floats(const std::vector<double>& values) { return vector_of(DType::float32, values); }

// Slopes for any number of heads: 2^k of them as a geometric row, the rest interleaved at half steps.
std::vector<double> usual_slopes(std::int64_t heads) {
  std::int64_t whole = 1;
  while (whole * 2 <= heads) whole *= 2;
  std::vector<double> slopes;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double step = h < whole ? static_cast<double>(h + 1) / static_cast<double>(whole)
                                  : (static_cast<double>(h - whole) + 0.5) / static_cast<double>(whole);
    slopes.push_back(std::exp2(-8 * step));
  }
  return slopes;
}

// V = identity makes O the matrix of weights.
Call exposed_weights(Trial& t, const Shape& shape) {
  Call call =
      t.call({.b = shape.b, .hq = shape.hq, .hkv = shape.hkv, .sq = shape.sq, .sk = shape.sk, .d = 8, .dv = shape.sk});
  fill(call.v, [s = shape.sk](std::int64_t flat) { return flat / s % s == flat % s ? 1 : 0; });
  return call;
}

}  // namespace

void add_sink_cases(std::vector<Case>& cases) {
  Family family(cases, "sinks");
  for (const std::int64_t sk : {1, 17, 64, 300}) {
    family.add("B86 random sinks, one -inf, one +20, Sk=" + std::to_string(sk), [sk](Trial& t) {
      Call call = t.call({.b = 2, .hq = 8, .hkv = 2, .sq = 9, .sk = sk, .d = 16});
      call.sinks = t.normal_f32({8}, 2);
      call.sinks.set(3, -infinity);
      call.sinks.set(6, 20);
      t.check(call);
      call.settings.band = {.causal = true, .left = 3, .alignment = Alignment::bottom_right};
      t.check(call);
    });
  }
  family.add("B86 rows that see only the sink: O = 0, LSE = sink", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 2, .sq = 5, .sk = 70, .d = 16});
    call.sinks = floats({1.5, -infinity});
    call.mask = laid_out(DType::boolean, {5, 70}, Layout::contiguous);
    fill(call.mask, [](std::int64_t flat) { return flat / 70 == 2 ? 1 : 0; });
    const Outputs outputs = t.check(call);
    t.expect(outputs.o.get(0) == 0, "an empty row is 0");
    t.expect_near(
        sliced(outputs.lse, 2, 0, 2), [](std::int64_t flat) { return flat < 2 ? 1.5 : -infinity; }, 1e-6,
        "lse of empty rows");
  });
  family.add("B86 a sink of -inf is none", [](Trial& t) {
    Call call = t.call({.hq = 3, .hkv = 1, .sq = 9, .sk = 140, .d = 16});
    const Outputs expected = t.check(call);
    call.sinks = floats({-infinity, -infinity, -infinity});
    const Outputs outputs = t.check(call);
    t.expect_near(outputs.o, [&](std::int64_t n) { return expected.o.get(n); }, 2 * t.eps(), "without sinks, o");
  });
  family.add("padding rows are -inf even with sinks", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 2, .hkv = 2, .sq = 9, .sk = 20, .d = 16});
    call.sinks = floats({1, 2});
    call.q_lengths = vector_of(DType::int32, {4, 0});
    call.kv_lengths = vector_of(DType::int32, {0, 20});
    const Outputs outputs = t.check(call);
    t.expect(outputs.lse.get(4) == -infinity && outputs.lse.get(18) == -infinity, "padding rows have LSE -inf");
  });
  for (const double sink : {-200.0, -20.0, 0.0, 60.0, 300.0}) {
    family.add("a sink of " + std::to_string(sink) + " beside ordinary scores", [sink](Trial& t) {
      Call call = t.call({.sq = 9, .sk = 200, .d = 16});
      call.sinks = floats({sink});
      t.check(call);
    });
  }
  family.add("a sink far above every score: O = 0 in the limit, LSE = sink",
             [](Trial& t) {
               Call call = t.call({.sq = 9, .sk = 200, .d = 16});
               call.sinks = floats({2e4});
               const Outputs outputs = t.run(call);
               t.expect_near(outputs.o, [](std::int64_t) { return 0.0; }, 0, "o");
               t.expect_near(
                   outputs.lse, [](std::int64_t) { return 2e4; }, 2e4 * 2 * epsilon_of(statistics_dtype(t.dtype())),
                   "lse");
             },
             {DType::float32, DType::float16, DType::bfloat16});
}

void add_alibi_cases(std::vector<Case>& cases) {
  Family family(cases, "alibi");
  for (const std::int64_t heads : {1, 8, 12, 40, 48, 71}) {
    family.add("B88 slopes of " + std::to_string(heads) + " heads equal a dense bias", [heads](Trial& t) {
      Call call = t.call({.hq = heads, .hkv = 1, .sq = 10, .sk = 33, .d = 16});
      const std::vector<double> slopes = usual_slopes(heads);
      call.alibi_slopes = floats(slopes);
      const Outputs outputs = t.check(call);
      Call dense = call;
      dense.alibi_slopes = {};
      dense.bias = laid_out(DType::float32, {heads, 10, 33}, Layout::contiguous);
      fill(dense.bias, [&](std::int64_t flat) {
        const std::int64_t distance = flat / 33 % 10 + 33 - 10 - flat % 33;
        return -slopes[static_cast<std::size_t>(flat / 330)] * static_cast<double>(std::abs(distance));
      });
      const Outputs expected = t.check(dense);
      t.expect_near(
          outputs.o, [&](std::int64_t n) { return expected.o.get(n); },
          t.dtype() == DType::float64 ? 1e-6 : 8 * t.eps(), "a dense bias, o");
    });
  }
  for (const auto& [sq, sk] : {std::pair<std::int64_t, std::int64_t>{40, 70}, {70, 40}, {65, 65}, {1, 200}}) {
    family.add("slopes by item, every corner, Sq=" + std::to_string(sq) + " Sk=" + std::to_string(sk),
               [sq = sq, sk = sk](Trial& t) {
                 Call call = t.call({.b = 2, .hq = 4, .hkv = 2, .sq = sq, .sk = sk, .d = 16});
                 call.alibi_slopes = t.normal_f32({2, 4}, 0.3);
                 t.collect(call, 200);
                 for (const Alignment alignment : {Alignment::top_left, Alignment::bottom_right}) {
                   call.settings.band = {.causal = true, .alignment = alignment};
                   t.collect(call, 200);
                 }
                 for (const std::int64_t delta : {-7, 0, 13}) {
                   call.settings.band = {.right = 5, .delta = delta};
                   t.collect(call, 200);
                   call.settings.band = {.delta = delta};
                   t.collect(call, 200);
                 }
                 t.judge_collected();
               });
  }
  family.add("lengths move the distance", [](Trial& t) {
    Call call = t.call({.b = 3, .hq = 2, .hkv = 2, .sq = 30, .sk = 80, .d = 16});
    call.q_lengths = vector_of(DType::int32, {30, 9, 17});
    call.kv_lengths = vector_of(DType::int32, {80, 33, 5});
    call.alibi_slopes = floats({0.5, 0.03});
    t.check(call);
  });
  family.add("positions beyond 2^24 at a large delta", [](Trial& t) {
    Call call = t.call({.sq = 4, .sk = 70, .d = 16});
    call.alibi_slopes = floats({1e-6});
    call.settings.band.delta = 1 << 20;
    t.check(call);
  });
  family.add("a negative slope", [](Trial& t) {
    Call call = t.call({.sq = 20, .sk = 70, .d = 16});
    call.alibi_slopes = floats({-0.2});
    t.check(call);
  });
}

void add_softcap_cases(std::vector<Case>& cases) {
  Family family(cases, "softcap");
  for (const double cap : {0.5, 15.0, 50.0, 1e4}) {
    family.add("cap " + std::to_string(cap) + " over inputs x4", [cap](Trial& t) {
      Call call = t.call({.hq = 2, .hkv = 1, .sq = 33, .sk = 90, .d = 32});
      fill_normal(call.q, t.random(), 4);
      call.settings.softcap = cap;
      t.check(call);
    });
  }
  family.add("B60 scores of +-18102 under a cap of 50", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 2, .sq = 9, .sk = 33, .d = 128});
    fill_constant(call.q, 40);
    fill(call.k, [&](std::int64_t flat) { return flat / 128 % 3 == 0 ? 40.0 : -40.0; });
    call.settings.softcap = 50;
    t.check(call);
  });
  family.add(
      "B85 causal, Sq=128 Sk=217, D=128, cap 15",
      [](Trial& t) {
        Call call = t.call({.hq = 1, .hkv = 1, .sq = 128, .sk = 217, .d = 128});
        fill_normal(call.q, t.random(), 4);
        call.settings.softcap = 15;
        call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
        t.check(call, 100);
      },
      every_float, true);
  family.add("B85 packed", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 1, .sq = 60, .sk = 90, .d = 64});
    fill_normal(call.q, t.random(), 4);
    call.settings.softcap = 15;
    call.cu_q = vector_of(DType::int32, {0, 20, 60});
    call.cu_k = vector_of(DType::int32, {0, 50, 90});
    call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
    t.check(call, 100);
  });
  family.add("softcap comes before bias, ALiBi and masks", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 2, .hkv = 1, .sq = 17, .sk = 80, .d = 16});
    fill_normal(call.q, t.random(), 4);
    call.settings.softcap = 2;
    call.bias = t.normal_f32({2, 2, 17, 80}, 6);
    call.alibi_slopes = t.normal_f32({2}, 0.2);
    call.mask = t.random_mask({17, 80}, 0.7);
    t.check(call);
  });
  family.add("tiny scores under a large cap lose nothing", [](Trial& t) {
    Call call = t.call({.sq = 9, .sk = 70, .d = 16});
    fill_normal(call.q, t.random(), 1e-3);
    call.settings.softcap = 1000;
    t.check(call);
  });
}

void add_dropout_cases(std::vector<Case>& cases) {
  Family family(cases, "dropout");
  for (const double p : {0.0, 0.1, 0.3, 0.48, 0.9, 1.0}) {
    family.add("B100 p=" + std::to_string(p) + ": V = identity exposes the weights", [p](Trial& t) {
      Call call = exposed_weights(t, {.b = 2, .hq = 4, .hkv = 2, .sq = 9, .sk = 70});
      call.settings.dropout = Dropout{.p = p, .seed = 0xFEDCBA9876543210u, .offset = 3};
      const Outputs outputs = t.check(call);
      if (p == 1) t.expect_near(outputs.o, [](std::int64_t) { return 0.0; }, 0, "p = 1, o");
      call.settings.dropout.reset();
      const Outputs without = t.run(call);
      t.expect_near(outputs.lse, [&](std::int64_t n) { return without.lse.get(n); }, 0, "the LSE knows no dropout");
      if (p > 0 && p < 1) {
        std::int64_t dropped = 0;
        for (std::int64_t n = 0; n < outputs.o.element_count(); ++n) {
          const double factor = outputs.o.get(n) == 0 ? 0 : 1 / (1 - p);
          dropped += factor == 0 ? 1 : 0;
          const double wanted = factor * without.o.get(n);
          t.expect(std::fabs(outputs.o.get(n) - wanted) <= 4 * t.eps() * std::fabs(wanted) + 1e-7,
                   "a weight is dropped whole or scaled by 1 / (1 - p)");
        }
        const auto count = static_cast<double>(outputs.o.element_count());
        t.expect(std::fabs(static_cast<double>(dropped) - p * count) < 6 * std::sqrt(p * (1 - p) * count),
                 "about p of the weights are dropped");
      }
    });
  }
  family.add("every word of the counter and key counts", [](Trial& t) {
    Call call = exposed_weights(t, {.b = 3, .hq = 3, .hkv = 1, .sq = 20, .sk = 37});
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
      for (const std::uint32_t offset : {0u, 1u, 0xFFFFFFFFu}) {
        call.settings.dropout = Dropout{.p = 0.5, .seed = seed, .offset = offset};
        t.collect(call, 60);
      }
    }
    t.judge_collected();
  });
  family.add("B101 dropout under causality, lengths, sinks and grouped heads", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 4, .hkv = 2, .sq = 64, .sk = 64, .d = 32});
    call.settings.dropout = Dropout{.p = 0.3, .seed = 42};
    call.settings.band = {.causal = true, .alignment = Alignment::top_left};
    call.kv_lengths = vector_of(DType::int32, {64, 33});
    call.sinks = t.normal_f32({4});
    t.check(call);
  });
  family.add_slow(
      "B101 the mean over 2000 seeds is the result without dropout",
      [](Trial& t) {
        Call call = t.call({.sq = 8, .sk = 12, .d = 4});
        const Outputs without = t.check(call);
        std::vector<double> sum(32), squares(32);
        constexpr int seeds = 2000;
        for (int seed = 0; seed < seeds; ++seed) {
          call.settings.dropout = Dropout{.p = 0.3, .seed = static_cast<std::uint64_t>(seed) * 7919};
          const Outputs outputs = t.run(call);
          for (std::size_t n = 0; n < 32; ++n) {
            const double value = outputs.o.get(static_cast<std::int64_t>(n));
            sum[n] += value;
            squares[n] += value * value;
          }
        }
        for (std::size_t n = 0; n < 32; ++n) {
          const double mean = sum[n] / seeds;
          const double deviation = std::sqrt(std::max(0.0, squares[n] / seeds - mean * mean) / seeds);
          t.expect(std::fabs(mean - without.o.get(static_cast<std::int64_t>(n))) < 6 * deviation, "E[O] is O");
        }
      },
      only_float32);
}

}  // namespace tilewise::verify
