// Range, cancellation and precision; activations with the structure of real ones (Gaussian inputs hide bugs).
#include <cmath>
#include <cstdio>

#include "verify/budget.hpp"
#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

// Elements of a [B, H, S, D] tensor as a function of (h, s, d), the same for every item.
using Element = std::function<double(std::int64_t h, std::int64_t s, std::int64_t d)>;

void fill_by(Tensor& tensor, const Element& element) {
  const auto shape = tensor.shape();
  fill(tensor, [&](std::int64_t flat) {
    return element(flat / (shape[2] * shape[3]) % shape[1], flat / shape[3] % shape[2], flat % shape[3]);
  });
}

// Key 0 gets about +8 in every score, along a direction that all queries share.
void attention_sink(Trial& t, Call& call) {
  const double d = static_cast<double>(call.q.shape()[3]);
  const double amplitude = std::sqrt(8 / std::sqrt(d));
  fill_by(call.q, [&](std::int64_t, std::int64_t, std::int64_t) { return amplitude + 0.3 * t.random().normal(); });
  fill_by(call.k,
          [&](std::int64_t, std::int64_t s, std::int64_t) { return s == 0 ? amplitude : 0.3 * t.random().normal(); });
}

// Two channels of q and k that are 30 to 100 times the others.
void massive_channels(Trial& t, Call& call) {
  const std::int64_t d = call.q.shape()[3];
  const auto gain = [d](std::int64_t column) { return column == 1 ? 30.0 : column == d / 2 ? 100.0 : 1.0; };
  for (Tensor* tensor : {&call.q, &call.k}) {
    fill_by(*tensor, [&](std::int64_t, std::int64_t, std::int64_t column) {
      return gain(column) * (1 + 0.05 * t.random().normal());
    });
  }
}

void low_rank(Trial& t, Call& call) {
  for (Tensor* tensor : {&call.q, &call.k}) {
    const auto shape = tensor->shape();
    const Tensor left = t.normal({shape[1] * shape[2], 4});
    const Tensor right = t.normal({4, shape[3]}, 0.5);
    fill_by(*tensor, [&](std::int64_t h, std::int64_t s, std::int64_t d) {
      double sum = 0.05 * t.random().normal();
      for (std::int64_t r = 0; r < 4; ++r) sum += left.get((h * shape[2] + s) * 4 + r) * right.get(r * shape[3] + d);
      return sum;
    });
  }
}

// Pairs (d, d + D/2) turned by position * 10000^(-2 d / D): scores fall off with distance.
void rotary(Trial&, Call& call) {
  for (Tensor* tensor : {&call.q, &call.k}) {
    const std::int64_t half = tensor->shape()[3] / 2;
    fill_by(*tensor, [&](std::int64_t h, std::int64_t s, std::int64_t d) {
      const double exponent = static_cast<double>(d % half) / static_cast<double>(half);
      const double angle = static_cast<double>(s) * std::pow(10000.0, -exponent) + 0.1 * static_cast<double>(h);
      return d < half ? std::cos(angle) : std::sin(angle);
    });
  }
}

// One key of each row stands 20 above the rest.
void peaked(Trial& t, Call& call) {
  const std::int64_t d = call.q.shape()[3];
  const double gain = std::sqrt(20 * std::sqrt(static_cast<double>(d)));
  fill_by(call.k, [&](std::int64_t, std::int64_t s, std::int64_t column) {
    return (s % d == column ? gain : 0) + 0.02 * t.random().normal();
  });
  fill_by(call.q, [&](std::int64_t h, std::int64_t s, std::int64_t column) {
    return ((s * 7 + h) % d == column ? gain : 0) + 0.02 * t.random().normal();
  });
}

void large_mean_values(Trial& t, Call& call) { fill_normal(call.v, t.random(), 0.01, 100); }

// A shared direction, a sink, and outlier channels at once.
void real_activations(Trial& t, Call& call) {
  const std::int64_t d = call.q.shape()[3];
  fill_by(call.q, [&](std::int64_t, std::int64_t, std::int64_t column) {
    return (column == 3 ? 30.0 : 1.0) * (0.2 + 0.3 * t.random().normal());
  });
  fill_by(call.k, [&](std::int64_t, std::int64_t s, std::int64_t column) {
    const double sink = s == 0 ? 24 / std::sqrt(static_cast<double>(d)) : 0;
    return sink + (column == 3 ? 0.1 : 1.0) * (0.2 + 0.3 * t.random().normal());
  });
}

}  // namespace

void add_structured_cases(std::vector<Case>& cases) {
  Family family(cases, "structured");
  using Structure = void (*)(Trial&, Call&);
  const std::pair<const char*, Structure> structures[] = {{"attention sink", attention_sink},
                                                          {"massive channels", massive_channels},
                                                          {"low rank", low_rank},
                                                          {"rotary", rotary},
                                                          {"peaked", peaked},
                                                          {"V of mean 100", large_mean_values},
                                                          {"real activations", real_activations}};
  for (const auto& [name, structure] : structures) {
    for (const std::int64_t d : {32, 64, 128}) {
      for (const bool causal : {false, true}) {
        Case& added = family.add(
            std::string(name) + ", D=" + std::to_string(d) + (causal ? " causal" : " full"),
            [structure = structure, d, causal](Trial& t) {
              Call call = t.call({.hq = 4, .hkv = 2, .sq = 96, .sk = 96, .d = d});
              structure(t, call);
              call.settings.band.causal = causal;
              t.check(call, 200);
            },
            every_float, d == 128);
        added.similar = d != 32;
      }
    }
  }
  family.add_slow("B66 D=256, group of 8, two items, causal", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 16, .hkv = 2, .sq = 64, .sk = 64, .d = 256});
    real_activations(t, call);
    call.settings.band.causal = true;
    t.check(call, 200);
  });
}

void add_numeric_cases(std::vector<Case>& cases) {
  Family family(cases, "numeric");
  for (const double scale : {0.0, -1.0, -0.25, 1.0, 3.0, 1e-30}) {
    char name[32];
    std::snprintf(name, sizeof name, "scale %g", scale);
    family.add(name, [scale](Trial& t) {
      Call call = t.call({.hq = 2, .hkv = 1, .sq = 20, .sk = 70, .d = 16});
      call.settings.scale = scale;
      t.check(call);
    });
  }
  family.add("scale -s with -Q is scale s with Q", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 1, .sq = 20, .sk = 70, .d = 16});
    call.settings.scale = 0.3;
    const Outputs expected = t.check(call);
    call.settings.scale = -0.3;
    fill(call.q, [q = call.q](std::int64_t flat) { return -q.get(flat); });
    const Outputs outputs = t.check(call);
    t.expect_near(outputs.o, [&](std::int64_t n) { return expected.o.get(n); }, 2 * t.eps(), "o");
  });
  family.add("scale 0 is q = 0", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 1, .sq = 20, .sk = 70, .d = 16});
    Call zeros = call;
    fill_constant(zeros.q, 0);
    const Outputs expected = t.check(zeros);
    call.settings.scale = 0;
    const Outputs outputs = t.check(call);
    t.expect_near(outputs.o, [&](std::int64_t n) { return expected.o.get(n); }, 2 * t.eps(), "o");
    t.expect_near(outputs.lse, [&](std::int64_t n) { return expected.lse.get(n); }, 1e-6, "lse");
  });
  family.add("B56 raw scores of -51200 in every place", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 2, .sq = 20, .sk = 64, .d = 128});
    fill_constant(call.q, 20);
    fill_constant(call.k, -20);
    const Outputs outputs = t.check(call, 20);
    const double lse = -51200 / std::sqrt(128.0) + std::log(64.0);
    t.expect_near(outputs.lse, [&](std::int64_t) { return lse; }, 1e-3, "lse");
  });
  family.add_slow(
      "B58 40000 equal weights over V = 4, then over a ramp",
      [](Trial& t) {
        Call call = t.call({.sq = 2, .sk = 40000, .d = 8});
        fill_constant(call.q, 0);
        fill_constant(call.v, 4);
        const Outputs outputs = t.run(call);
        t.expect_near(outputs.o, [](std::int64_t) { return 4.0; }, t.dtype() == DType::float32 ? 4 * t.eps() : 0, "o");
        fill(call.v, [](std::int64_t flat) {
          const std::int64_t key = flat / 8;
          return 4.0 * static_cast<double>(key) / 40000;
        });
        if (t.dtype() != DType::float32) {
          t.check(call);
          return;
        }
        // Key blocks of 64 make 625 additions to O, each off by up to eps/2: 12.5 eps is one standard deviation at
        // most. The naive formula divides first and happens to err four times less here, so its error is no yardstick.
        const Outputs ramp = t.run(call);
        t.expect_near(ramp.o, [](std::int64_t) { return 1.99995; }, 1.99995 * 12.5 * t.eps(), "a ramp, o");
      },
      {DType::float32, DType::float16, DType::bfloat16});
  family.add(
      "B61 float32 means float32",
      [](Trial& t) {
        Call call = t.call({.sq = 128, .sk = 128, .d = 32});
        call.settings.band.causal = true;
        t.check(call);
        t.expect(t.max_error() < 1e-5, "the error is that of a shorter format");
      },
      only_float32);
  for (const std::int64_t sk : {512, 4096, 16384}) {
    family.add_slow("B63 V = 1 + noise, causal, Sk=" + std::to_string(sk),
                    [sk](Trial& t) {
                      Call call = t.call({.sq = 24, .sk = sk, .d = 32});
                      fill_normal(call.v, t.random(), 0.02, 1);
                      call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
                      t.check(call);
                      fill_constant(call.v, 1);
                      const Outputs ones = t.run(call);
                      t.expect_near(
                          ones.o, [](std::int64_t) { return 1.0; }, tolerance_of_weights(t.dtype(), sk),
                          "V = 1 stays 1, o");
                    },
                    {DType::float32, DType::bfloat16});
  }
  family.add("B65 an additive -1e30 leaves no trace", [](Trial& t) {
    Call call = t.call({.b = 3, .hq = 2, .hkv = 2, .sq = 30, .sk = 60, .d = 16});
    call.bias = laid_out(DType::float32, {3, 1, 1, 60}, Layout::contiguous);
    const std::int64_t valid[] = {3, 31, 60};
    fill(call.bias, [&](std::int64_t flat) { return flat % 60 < valid[flat / 60] ? 0.0 : -1e30; });
    const Outputs outputs = t.check(call);
    call.bias = {};
    call.kv_lengths = vector_of(DType::int32, {3, 31, 60});
    const Outputs cut = t.check(call);
    t.expect_near(outputs.o, [&](std::int64_t n) { return cut.o.get(n); }, 4 * t.eps(), "the padded run, o");
  });
  for (const double spread : {5.0, 30.0}) {
    family.add("scores spread by " + std::to_string(spread), [spread](Trial& t) {
      Call call = t.call({.hq = 2, .hkv = 2, .sq = 40, .sk = 200, .d = 32});
      fill_normal(call.q, t.random(), spread);
      t.check(call);
    });
  }
  family.add("the maximum rises with every key", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 1, .sq = 3, .sk = 300, .d = 8});
    fill_constant(call.q, 1);
    fill_by(call.k, [](std::int64_t, std::int64_t s, std::int64_t) { return 0.05 * static_cast<double>(s); });
    t.check(call);
  });
  family.add("the maximum comes first and falls with every key", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 1, .sq = 3, .sk = 300, .d = 8});
    fill_constant(call.q, 1);
    fill_by(call.k, [](std::int64_t, std::int64_t s, std::int64_t) { return 15 - 0.05 * static_cast<double>(s); });
    t.check(call);
  });
  family.add("later keys stand 200 above earlier ones: earlier weights vanish", [](Trial& t) {
    Call call = t.call({.sq = 3, .sk = 260, .d = 4});
    fill_constant(call.q, 1);
    call.settings.scale = 1;
    fill_by(call.k, [](std::int64_t, std::int64_t s, std::int64_t) { return s < 130 ? -25.0 : 25.0; });
    t.check(call);
  });
  family.add("subnormal q and k under a large scale", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 2, .sq = 12, .sk = 70, .d = 16});
    for (Tensor* tensor : {&call.q, &call.k}) {
      fill(*tensor,
           [&](std::int64_t) { return (t.random().below(2) == 0 ? -1 : 1) * (6e-8 + 6e-5 * t.random().uniform()); });
    }
    call.settings.scale = 3e8;
    t.check(call);
  });
  family.add("subnormal float32 q and V",
             [](Trial& t) {
               Call call = t.call({.hq = 2, .hkv = 2, .sq = 12, .sk = 70, .d = 16});
               fill_normal(call.q, t.random(), 2e-39);
               call.settings.scale = 1e38;
               t.check(call);
               fill_normal(call.v, t.random(), 1e-39);
               t.check(call);
             },
             {DType::float32, DType::bfloat16, DType::float64});
  family.add("V at the ends of the range", [](Trial& t) {
    Call call = t.call({.sq = 6, .sk = 70, .d = 16});
    const double large = t.largest() / 4;
    fill(call.v, [&](std::int64_t) { return (t.random().uniform() - 0.5) * large; });
    t.check(call);
  });
}

}  // namespace tilewise::verify
