// What must hold without any oracle: invariants, determinism, independence of batch, threads and the caller's mode.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <numeric>

#include "verify/cases.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace tilewise::verify {
namespace {

const Shape usual{.b = 2, .hq = 4, .hkv = 2, .sq = 21, .sk = 75, .d = 16, .dv = 24};

// Masks, windows and lengths under which an invariant is tried.
struct Setting {
  const char* name;
  std::function<void(Trial&, Call&)> apply;
};

const Setting settings[] = {
    {"full", [](Trial&, Call&) {}},
    {"causal", [](Trial&, Call& call) { call.settings.band = {.causal = true, .alignment = Alignment::bottom_right}; }},
    {"window",
     [](Trial&, Call& call) { call.settings.band = {.left = 7, .right = 4, .alignment = Alignment::top_left}; }},
    {"masked", [](Trial& t, Call& call) { call.mask = t.random_mask({2, 4, 21, 75}, 0.5); }},
    {"lengths", [](Trial&, Call& call) { call.kv_lengths = vector_of(DType::int64, {75, 34}); }},
};

// Error of a weighted mean of up to 75 values near 1. Both of its sums round up to 75 times, by eps/2 each and with
// either sign: sqrt(75) eps/2 = 4.3 eps is one standard deviation at most. A polluted mean is off by 1/75.
double rounding_of_a_mean(const Trial& t) { return 12 * t.eps(); }

// Number of keys that each row of `usual` sees: from q = 0, where LSE is its logarithm.
void counts_keys(Trial& t, const Setting& setting) {
  Call call = t.call(usual);
  setting.apply(t, call);
  fill_constant(call.q, 0);
  const Outputs outputs = t.check(call);
  for (std::int64_t row = 0; row < outputs.lse.element_count(); ++row) {
    const double count = std::exp(outputs.lse.get(row));
    t.expect(std::fabs(count - std::round(count)) < 1e-4 * std::max(1.0, count), "q = 0: exp(LSE) counts keys");
  }
  fill_constant(call.v, 3);
  const Outputs constant = t.run(call);
  for (std::int64_t row = 0; row < outputs.lse.element_count(); ++row) {
    const bool empty = std::isinf(outputs.lse.get(row));
    for (std::int64_t c = 0; c < 24; ++c) {
      const double o = constant.o.get(row * 24 + c);
      t.expect(empty ? o == 0 : std::fabs(o - 3) <= 3 * rounding_of_a_mean(t),
               "V = 3 must give 3, or 0 in an empty row");
    }
  }
}

void constant_values(Trial& t, const Setting& setting) {
  Call call = t.call(usual);
  setting.apply(t, call);
  fill_constant(call.v, -1.5);
  const Outputs outputs = t.check(call);
  for (std::int64_t row = 0; row < outputs.lse.element_count(); ++row) {
    const bool empty = std::isinf(outputs.lse.get(row));
    for (std::int64_t c = 0; c < 24; ++c) {
      const double o = outputs.o.get(row * 24 + c);
      t.expect(empty ? o == 0 : std::fabs(o + 1.5) <= 1.5 * rounding_of_a_mean(t),
               "V = c must give c, or 0 in an empty row");
    }
  }
}

// Adding a constant to all scores of a row: a bias that is the same for all keys.
void shifted_scores(Trial& t, double shift) {
  Call call = t.call(usual);
  call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
  const Outputs plain = t.check(call);
  call.bias = laid_out(DType::float32, {1, 1, 21, 1}, Layout::contiguous);
  fill_constant(call.bias, shift);
  const Outputs outputs = t.check(call);
  const double eps = epsilon_of(statistics_dtype(t.dtype()));
  // Scores near `shift` carry an error of eps * shift, and so do the weights.
  const double tolerance = 4 * t.eps() + 8 * eps * std::fabs(shift);
  t.expect_near(outputs.o, [&](std::int64_t n) { return plain.o.get(n); }, tolerance, "shifted scores, o");
  t.expect_near(
      outputs.lse, [&](std::int64_t n) { return plain.lse.get(n) + shift; }, 8 * eps * (std::fabs(shift) + 8),
      "shifted scores, lse");
}

void permuted_keys(Trial& t) {
  Call call = t.call(usual);
  call.mask = t.random_mask({1, 1, 21, 75}, 0.7);
  const Outputs plain = t.check(call);
  std::vector<std::int64_t> order(75);
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t n = 74; n > 0; --n) {
    std::swap(order[static_cast<std::size_t>(n)], order[static_cast<std::size_t>(t.random().below(n + 1))]);
  }
  Call permuted = call;
  for (const auto& [to, from] : {std::pair{&permuted.k, &call.k}, std::pair{&permuted.v, &call.v}}) {
    const std::int64_t d = from->shape()[3];
    for (std::int64_t n = 0; n < from->element_count(); ++n) {
      const std::int64_t j = n / d % 75;
      to->set_bits(n, from->bits(n + (order[static_cast<std::size_t>(j)] - j) * d));
    }
  }
  for (std::int64_t n = 0; n < 21 * 75; ++n) {
    permuted.mask.set_bits(n, call.mask.bits(n / 75 * 75 + order[static_cast<std::size_t>(n % 75)]));
  }
  const Outputs outputs = t.check(permuted);
  t.expect_near(outputs.o, [&](std::int64_t n) { return plain.o.get(n); }, rounding_of_a_mean(t), "permuted keys, o");
}

// Splits the keys, merges the parts by their LSE in float64, compares with one run.
void split_keys(Trial& t, std::int64_t parts) {
  Call call = t.call({.hq = 2, .hkv = 1, .sq = 9, .sk = 160, .d = 16});
  const Outputs whole = t.check(call);
  const std::int64_t rows = 2 * 9;
  std::vector<double> weight(static_cast<std::size_t>(rows)), o(static_cast<std::size_t>(rows * 16));
  for (std::int64_t part = 0; part < parts; ++part) {
    Call piece = call;
    piece.k = sliced(call.k, 2, 160 * part / parts, 160 * (part + 1) / parts);
    piece.v = sliced(call.v, 2, 160 * part / parts, 160 * (part + 1) / parts);
    const Outputs outputs = t.run(piece);
    for (std::int64_t row = 0; row < rows; ++row) {
      const double w = std::exp(outputs.lse.get(row) - whole.lse.get(row));
      weight[static_cast<std::size_t>(row)] += w;
      for (std::int64_t c = 0; c < 16; ++c)
        o[static_cast<std::size_t>(row * 16 + c)] += w * outputs.o.get(row * 16 + c);
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    t.expect(std::fabs(weight[static_cast<std::size_t>(row)] - 1) < 1e-5, "the parts' weights sum to 1");
  }
  t.expect_near(
      whole.o, [&](std::int64_t n) { return o[static_cast<std::size_t>(n)]; }, 8 * t.eps(), "merged parts, o");
}

void one_visible_key(Trial& t) {
  Call call = t.call({.hq = 2, .hkv = 2, .sq = 130, .sk = 130, .d = 8});
  call.settings.band = {.left = 0, .right = 0, .alignment = Alignment::top_left};
  t.expect_same_bits(t.check(call).o, relaid(call.v, Layout::exact), "the diagonal alone gives V");
}

Call item_of(const Call& call, std::int64_t b) {
  Call alone = call;
  for (Tensor* tensor : {&alone.q, &alone.k, &alone.v}) *tensor = sliced(*tensor, 0, b, b + 1);
  for (Tensor* tensor : {&alone.mask, &alone.bias}) {
    if (tensor->shape().size() == 4 && tensor->shape()[0] > 1) *tensor = sliced(*tensor, 0, b, b + 1);
  }
  for (Tensor* tensor : {&alone.q_lengths, &alone.kv_lengths}) {
    if (tensor->present()) *tensor = vector_of(tensor->dtype(), {tensor->get(b)});
  }
  add_outputs(alone);
  return alone;
}

void item_alone(Trial& t, const Shape& shape, const std::function<void(Trial&, Call&)>& apply) {
  Call call = t.call(shape);
  apply(t, call);
  const Outputs together = t.run(call, 2);
  for (std::int64_t b = 0; b < shape.b; ++b) {
    Call alone = item_of(call, b);
    const Outputs outputs = t.run(alone, 1);
    const std::string what = "item " + std::to_string(b) + " alone";
    t.expect_same_bits(outputs.o, relaid(sliced(together.o, 0, b, b + 1), Layout::exact), what + ", o");
    t.expect_same_bits(outputs.lse, relaid(sliced(together.lse, 0, b, b + 1), Layout::exact), what + ", lse");
  }
}

void same_for_all_threads(Trial& t, Call call) {
  const Outputs first = t.run(call, 1);
  for (const int threads : {1, 2, 3, 4, 0}) {
    for (int repeat = 0; repeat < 6; ++repeat) {
      t.expect_same_bits(t.run(call, threads), first, std::to_string(threads) + " threads");
    }
  }
}

// The floating-point mode of this thread: rounding, and where it exists flushing of subnormals.
class CallersMode {
 public:
  explicit CallersMode(int rounding) : rounding_(std::fegetround()) {
    std::fesetround(rounding);
#if defined(__SSE__)
    control_ = _mm_getcsr();
    _mm_setcsr(control_ | 0x8040u);  // flush results to zero, read subnormals as zero
    set_ = _mm_getcsr();
#endif
    wanted_ = rounding;
  }
  CallersMode(const CallersMode&) = delete;
  CallersMode& operator=(const CallersMode&) = delete;
  [[nodiscard]] bool is_as_left() const {
#if defined(__SSE__)
    constexpr unsigned exception_flags = 0x3F;
    if (((_mm_getcsr() ^ set_) & ~exception_flags) != 0) return false;
#endif
    return std::fegetround() == wanted_;
  }
  ~CallersMode() {
#if defined(__SSE__)
    _mm_setcsr(control_);
#endif
    std::fesetround(rounding_);
  }

 private:
  int rounding_;
  int wanted_ = 0;
#if defined(__SSE__)
  unsigned control_ = 0;
  unsigned set_ = 0;
#endif
};

void callers_mode(Trial& t, int rounding) {
  Call call = t.call({.hq = 2, .hkv = 1, .sq = 18, .sk = 70, .d = 16});
  const bool tiny = t.dtype() != DType::float16;
  fill_normal(call.q, t.random(), tiny ? 2e-39 : 3e-5);
  call.settings.scale = tiny ? 1e38 : 3e4;
  fill_normal(call.v, t.random(), tiny ? 1e-39 : 2e-7);
  const Outputs expected = t.check(call);
  for (const int threads : {1, 2}) {
    bool restored = false;
    Outputs outputs;
    {
      const CallersMode mode(rounding);
      outputs = t.run(call, threads);
      restored = mode.is_as_left();
    }
    t.expect(restored, "the caller's floating-point mode was changed");
    t.expect_same_bits(outputs, expected, "under another floating-point mode");
  }
}

}  // namespace

void add_invariant_cases(std::vector<Case>& cases) {
  Family family(cases, "invariants");
  for (const Setting& setting : settings) {
    family.add(std::string("V constant, ") + setting.name, [&setting](Trial& t) { constant_values(t, setting); });
    family.add(std::string("q = 0 counts keys, ") + setting.name, [&setting](Trial& t) { counts_keys(t, setting); });
  }
  family.add("B95 q = 0 over 1024 keys: LSE = 6.931472", [](Trial& t) {
    Call call = t.call({.sq = 4, .sk = 1024, .d = 32});
    fill_constant(call.q, 0);
    t.expect_near(t.check(call).lse, [](std::int64_t) { return std::log(1024.0); }, 2e-6, "lse");
  });
  for (const double shift : {-50.0, 1.0, 50.0}) {
    family.add(
        "a constant of " + std::to_string(shift) + " on all scores", [shift](Trial& t) { shifted_scores(t, shift); },
        wide_floats);
  }
  family.add("permuted keys", permuted_keys);
  for (const std::int64_t parts : {1, 2, 5, 16}) {
    family.add("B96 keys split in " + std::to_string(parts) + " and merged by LSE",
               [parts](Trial& t) { split_keys(t, parts); });
  }
  family.add_slow(
      "B96 a prefix of 4096 keys and a suffix of 64, D=192 Dv=128",
      [](Trial& t) {
        Call call = t.call({.hq = 2, .hkv = 2, .sq = 2, .sk = 4160, .d = 192, .dv = 128});
        const Outputs whole = t.check(call);
        Call prefix = call;
        Call suffix = call;
        for (const auto& [part, begin, end] : {std::tuple{&prefix, 0, 4096}, std::tuple{&suffix, 4096, 4160}}) {
          part->k = sliced(call.k, 2, begin, end);
          part->v = sliced(call.v, 2, begin, end);
        }
        const Outputs a = t.run(prefix);
        const Outputs b = t.run(suffix);
        t.expect_near(
            whole.o,
            [&](std::int64_t n) {
              const double wa = std::exp(a.lse.get(n / 128) - whole.lse.get(n / 128));
              const double wb = std::exp(b.lse.get(n / 128) - whole.lse.get(n / 128));
              return wa * a.o.get(n) + wb * b.o.get(n);
            },
            t.dtype() == DType::float32 ? 1e-5 : 1e-3, "merged, o");
      },
      {DType::float32, DType::bfloat16});
  family.add("one visible key in every row, bitwise", one_visible_key);
}

void add_determinism_cases(std::vector<Case>& cases) {
  Family family(cases, "determinism");
  const Band causal{.causal = true, .alignment = Alignment::bottom_right};
  family.add("B105 30 repeats over 1, 2, 3, 4 and all threads", [causal](Trial& t) {
    Call call = t.call({.b = 2, .hq = 4, .hkv = 2, .sq = 65, .sk = 130, .d = 32});
    call.settings.band = causal;
    same_for_all_threads(t, call);
  });
  family.add("B105 S=33, D=64, one head", [](Trial& t) {
    Call call = t.call({.sq = 33, .sk = 33, .d = 64});
    t.check(call);
    same_for_all_threads(t, call);
  });
  family.add("few queries over many keys, any number of threads",
             [](Trial& t) { same_for_all_threads(t, t.call({.hq = 4, .hkv = 1, .sq = 2, .sk = 1100, .d = 32})); });
  const std::pair<const char*, Shape> shapes[] = {{"prefill", {.b = 3, .hq = 4, .hkv = 2, .sq = 37, .sk = 70, .d = 16}},
                                                  {"decode", {.b = 3, .hq = 4, .hkv = 1, .sq = 1, .sk = 700, .d = 32}},
                                                  {"tiny", {.b = 7, .hq = 3, .hkv = 3, .sq = 3, .sk = 3, .d = 64}}};
  for (const auto& [name, shape] : shapes) {
    const Shape one = shape;
    family.add(std::string("an item alone has the bits it has in a batch, ") + name, [one, causal](Trial& t) {
      item_alone(t, one, [](Trial&, Call&) {});
      item_alone(t, one, [&](Trial&, Call& call) { call.settings.band = causal; });
      item_alone(t, one, [&](Trial& trial, Call& call) {
        call.mask = trial.random_mask({one.b, 1, one.sq, one.sk}, 0.5);
        call.bias = trial.normal_f32({one.hq, 1, one.sk});
      });
      item_alone(t, one, [&](Trial& trial, Call& call) {
        call.kv_lengths = Tensor(DType::int32, {one.b});
        fill(call.kv_lengths, [&](std::int64_t) { return static_cast<double>(trial.random().below(one.sk + 1)); });
      });
    });
  }
  for (const auto& [name, rounding] : {std::pair{"to nearest", FE_TONEAREST}, std::pair{"upward", FE_UPWARD}}) {
    family.add(std::string("the caller flushes subnormals, rounding ") + name,
               [rounding = rounding](Trial& t) { callers_mode(t, rounding); });
  }
}

}  // namespace tilewise::verify
