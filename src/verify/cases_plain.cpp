// Plain problems (one head, contiguous: what the ladder takes), tails of tiles, head dimensions.
#include <algorithm>
#include <cmath>

#include "verify/budget.hpp"
#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

std::string with(const char* name, std::int64_t value) { return std::string(name) + std::to_string(value); }

// The one-element-per-row checks of B41: no reference can be wrong about them.
void partial_key_tile(Trial& t, std::int64_t sk) {
  Call ones = t.call({.b = 1, .hq = 2, .hkv = 2, .sq = 5, .sk = sk, .d = 16});
  fill_constant(ones.v, 1);
  const Outputs constant = t.run(ones);
  t.expect_near(
      constant.o, [](std::int64_t) { return 1.0; }, tolerance_of_weights(t.dtype(), sk), "V = 1 must give 1, o");

  Call zeros = t.call({.b = 1, .hq = 2, .hkv = 2, .sq = 5, .sk = sk, .d = 16});
  fill_constant(zeros.q, 0);
  const Outputs mean = t.check(zeros);
  const double count = std::log(static_cast<double>(sk));
  t.expect_near(
      mean.lse, [&](std::int64_t) { return count; }, 2 * epsilon_of(statistics_dtype(t.dtype())) * std::max(1.0, count),
      "q = 0 must give ln(Sk), lse");

  Call normal = t.call({.b = 1, .hq = 2, .hkv = 2, .sq = 5, .sk = sk, .d = 16});
  t.check(normal);
}

// Sizes beside which kernels change their path.
constexpr std::int64_t edges[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
constexpr std::int64_t long_edges[] = {255, 256, 257, 511, 512, 513, 1023, 1024, 1025};
constexpr std::int64_t dims[] = {7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 39, 40, 41, 63, 64, 65, 127, 128, 129};
constexpr std::int64_t groups[] = {1, 1, 1, 2, 3, 4};
constexpr Layout sweep_layouts[] = {Layout::exact, Layout::bshd, Layout::fused, Layout::padded_rows,
                                    Layout::reversed_rows};

template <class T, std::size_t n>
T pick(Random& random, const T (&values)[n]) {
  return values[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(n)))];
}

void sweep(Trial& t, const Shape& shape, Layout layout, bool causal, Alignment alignment) {
  Call call = t.call(shape, layout);
  add_outputs(call, layout == Layout::bshd ? Layout::bshd : Layout::contiguous);
  call.settings.band.causal = causal;
  if (causal) call.settings.band.alignment = alignment;
  t.check(call, 64);
}

}  // namespace

void add_plain_cases(std::vector<Case>& cases) {
  Family family(cases, "plain");
  for (const std::int64_t n : {1, 2, 3, 5, 8, 13, 16, 31, 32, 33, 64, 65, 100, 128, 200}) {
    for (const std::int64_t d : {8, 32, 64, 128}) {
      if (d == 128 && n > 100) continue;
      for (const bool causal : {false, true}) {
        const std::string name = with("N=", n) + with(" D=", d) + (causal ? " causal" : " full");
        Case& added = family.add(name, [=](Trial& t) {
          Call call = t.call({.sq = n, .sk = n, .d = d});
          call.settings.band.causal = causal;
          t.check(call);
        });
        added.similar = n == 100 || n == 128;
      }
    }
  }
}

void add_tail_cases(std::vector<Case>& cases) {
  Family family(cases, "tails");
  for (const std::int64_t sk : {1, 2, 3, 5, 7, 13, 16, 17, 31, 33, 63, 65, 127, 129}) {
    family.add(with("B41 partial key tile, Sk=", sk), [=](Trial& t) { partial_key_tile(t, sk); });
  }
  for (const std::int64_t sk : {255, 256, 257, 513, 1025}) {
    family.add(with("B40 one query over many keys, Sk=", sk), [=](Trial& t) {
      Call call = t.call({.sk = sk, .d = 32});
      t.check(call);
      Call several = t.call({.b = 2, .hq = 2, .hkv = 1, .sk = sk, .d = 32});
      t.check(several);
    });
  }
  family.add("B43 one key and one query, values x3", [](Trial& t) {
    for (int repeat = 0; repeat < 8; ++repeat) {
      Call call = t.call({.d = 16});
      for (Tensor* tensor : {&call.q, &call.k, &call.v}) fill_normal(*tensor, t.random(), 3);
      t.expect_same_bits(t.collect(call).o, relaid(call.v, Layout::exact), "one visible key gives its value");
    }
    t.judge_collected();
  });
  for (const std::int64_t sk : {1023, 1024, 1025, 2048, 6022}) {
    family.add_slow(
        with("B93 grouped decode over a long cache, Sk=", sk),
        [=](Trial& t) {
          const bool many = sk == 1024;
          Call call = t.call({.hq = many ? 32 : 4, .hkv = many ? 8 : 1, .sk = sk, .d = 128});
          t.check(call, 4);
        },
        sk > 2000 ? narrow_floats : every_float);
  }
  family.add_slow("B93 Sk=1024 with the last key masked is Sk=1023", [](Trial& t) {
    Call masked = t.call({.hq = 8, .hkv = 2, .sk = 1024, .d = 128});
    masked.mask = laid_out(DType::boolean, {1024}, Layout::contiguous);
    fill(masked.mask, [](std::int64_t j) { return j < 1023 ? 1 : 0; });
    const Outputs with_mask = t.check(masked);
    Call cut = masked;
    cut.mask = {};
    cut.k = sliced(masked.k, 2, 0, 1023);
    cut.v = sliced(masked.v, 2, 0, 1023);
    const Outputs without = t.check(cut);
    t.expect_near(with_mask.o, [&](std::int64_t n) { return without.o.get(n); }, 2 * t.eps(), "masked against cut, o");
  });

  // Section 4's sweep, sampled: the sample is the same on every machine.
  Random random(seed_of("sweep"));
  for (int n = 0; n < 84; ++n) {
    Shape shape;
    shape.sq = pick(random, edges);
    shape.sk = n % 6 == 5 ? pick(random, long_edges) : pick(random, edges);
    shape.d = pick(random, dims);
    if (n % 5 == 4) shape.dv = pick(random, dims);
    shape.b = 1 + random.below(2);
    shape.hkv = 1 + random.below(2);
    shape.hq = shape.hkv * pick(random, groups);
    while (shape.b * shape.hq * shape.sq * shape.sk * shape.d > (1 << 21)) shape.sq = pick(random, edges);
    const Layout layout = pick(random, sweep_layouts);
    const bool causal = random.below(2) == 0;
    const Alignment alignment = random.below(2) == 0 ? Alignment::top_left : Alignment::bottom_right;
    const std::string name = with("sweep ", n) + with(": Sq=", shape.sq) + with(" Sk=", shape.sk) +
                             with(" D=", shape.d) + with(" Dv=", shape.v_dim()) + with(" Hq=", shape.hq) +
                             with(" Hkv=", shape.hkv) + (causal ? " causal" : "");
    const bool slow = shape.b * shape.hq * shape.sq * shape.sk * shape.d > (1 << 20);
    Case& added = family.add(name, [=](Trial& t) { sweep(t, shape, layout, causal, alignment); }, every_float, slow);
    added.similar = n % 4 >= 2;
  }
}

void add_head_dim_cases(std::vector<Case>& cases) {
  Family family(cases, "heads");
  for (const std::int64_t d : {1,  2,  3,  4,  5,  7,  8,  9,  12, 15,  16,  17,  24,  31,  32,  33,  40,  47,  48,
                               49, 56, 63, 64, 65, 72, 80, 96, 97, 104, 112, 127, 128, 129, 160, 192, 255, 256, 257}) {
    family.add(with("D=", d), [=](Trial& t) {
      Call call = t.call({.hq = 2, .hkv = 1, .sq = 9, .sk = 21, .d = d});
      t.check(call);
      call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
      t.check(call);
    });
  }
  for (const std::int64_t d : {320, 512, 576, 1000}) {
    family.add(with("large D=", d), [=](Trial& t) {
      Call call = t.call({.hq = 2, .hkv = 1, .sq = 5, .sk = 19, .d = d});
      t.check(call);
    });
  }
  constexpr std::int64_t pairs[][2] = {{16, 1},  {1, 16},  {32, 24},   {24, 32},   {64, 96}, {96, 64},
                                       {8, 128}, {128, 8}, {192, 128}, {576, 512}, {33, 65}, {64, 7}};
  for (const auto& [d, dv] : pairs) {
    family.add(with("D=", d) + with(" Dv=", dv), [d = d, dv = dv](Trial& t) {
      Call call = t.call({.hq = 2, .hkv = 2, .sq = 7, .sk = 18, .d = d, .dv = dv});
      t.check(call);
    });
  }
  family.add("B35 the output takes V's head dim", [](Trial& t) {
    Call call = t.call({.sq = 16, .sk = 16, .d = 32, .dv = 24});
    t.check(call);
  });
  family.add("B36 D=0 with Dv=1: every score is 0", [](Trial& t) {
    Call call = t.call({.hq = 16, .hkv = 16, .sq = 16, .sk = 16, .d = 0, .dv = 1});
    for (const std::optional<double> scale : {std::optional<double>{}, std::optional<double>{1.0}}) {
      call.settings.scale = scale;
      const Outputs outputs = t.check(call);
      t.expect_near(
          outputs.lse, [](std::int64_t) { return std::log(16.0); }, 4 * epsilon_of(statistics_dtype(t.dtype())),
          "lse of 16 zero scores");
    }
  });
  family.add("Dv=0: no output but the LSE", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 1, .sq = 3, .sk = 9, .d = 8, .dv = 0});
    t.check(call);
  });
  for (const std::int64_t sk : {255, 257}) {
    family.add_slow(
        with("B38 latent attention: V is the first 512 columns of K, Sk=", sk),
        [=](Trial& t) {
          Call call = t.call({.hq = sk == 257 ? 64 : 4, .hkv = 1, .sk = sk, .d = 576, .dv = 512}, Layout::contiguous);
          TensorView prefix = call.k.view();
          prefix.shape[3] = 512;
          call.v = Tensor::over(prefix);
          call.settings.scale = 1 / std::sqrt(192.0);
          t.check(call, 8);
        },
        sk == 257 ? narrow_floats : every_float);
  }
  for (const std::int64_t d : {72, 104}) {
    family.add(with("B33 every column of D=", d), [=](Trial& t) {
      Call call = t.call({.hq = 2, .hkv = 2, .sq = 40, .sk = 70, .d = d});
      t.check(call);
    });
  }
}

}  // namespace tilewise::verify
