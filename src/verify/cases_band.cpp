// Causal masks and windows: which keys a query sees, for every corner and bound.
#include <limits>

#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

using Bound = std::optional<std::int64_t>;
constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::lowest();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

std::string text_of(const Bound& bound) { return bound ? std::to_string(*bound) : "-"; }

// Every pair of bounds near the matrix, both corners and an explicit delta.
void every_band(Trial& t, std::int64_t sq, std::int64_t sk) {
  Call call = t.call({.sq = sq, .sk = sk, .d = 4});
  std::vector<Bound> bounds{std::nullopt};
  for (std::int64_t bound = -sq - 1; bound <= sk + 1; ++bound) bounds.emplace_back(bound);
  for (const Bound& left : bounds) {
    for (const Bound& right : bounds) {
      for (int corner = 0; corner < 3; ++corner) {
        call.settings.band = {.left = left, .right = right};
        if (corner == 0) call.settings.band.alignment = Alignment::top_left;
        if (corner == 1) call.settings.band.alignment = Alignment::bottom_right;
        if (corner == 2) call.settings.band.delta = t.random().below(sq + sk + 3) - sq - 1;
        t.collect(call);
      }
    }
  }
  t.judge_collected();
}

// V = identity makes O the matrix of weights.
Call one_hot(Trial& t, std::int64_t s) {
  Call call = t.call({.sq = s, .sk = s, .d = 8, .dv = s});
  fill(call.v, [s](std::int64_t flat) { return flat / s == flat % s ? 1 : 0; });
  return call;
}

}  // namespace

void add_band_cases(std::vector<Case>& cases) {
  Family family(cases, "band");
  constexpr std::int64_t small[][2] = {{1, 1}, {1, 5}, {5, 1}, {4, 4}, {3, 7}, {7, 3}, {6, 6}};
  for (const auto& [sq, sk] : small) {
    family.add(
        "every band, Sq=" + std::to_string(sq) + " Sk=" + std::to_string(sk),
        [sq = sq, sk = sk](Trial& t) { every_band(t, sq, sk); }, wide_floats);
  }

  constexpr std::int64_t sizes[][2] = {{65, 130}, {130, 65}, {129, 129}, {17, 200}};
  const std::pair<Bound, Bound> windows[] = {{0, 0},
                                             {3, 0},
                                             {16, 16},
                                             {64, 0},
                                             {63, 1},
                                             {100, -3},
                                             {-5, 20},
                                             {std::nullopt, 10},
                                             {7, std::nullopt},
                                             {-3, 2},
                                             {-70, std::nullopt},
                                             {std::nullopt, -66}};
  for (const auto& [sq, sk] : sizes) {
    for (const auto& [left, right] : windows) {
      const std::string name = "window (" + text_of(left) + ", " + text_of(right) + "), Sq=" + std::to_string(sq) +
                               " Sk=" + std::to_string(sk);
      family.add(
          name,
          [sq = sq, sk = sk, left = left, right = right](Trial& t) {
            Call call = t.call({.hq = 2, .hkv = 1, .sq = sq, .sk = sk, .d = 8});
            for (const Alignment alignment : {Alignment::top_left, Alignment::bottom_right}) {
              call.settings.band = {.left = left, .right = right, .alignment = alignment};
              t.collect(call, 140);
            }
            t.judge_collected();
          },
          sq == 129 ? every_float : only_float32);
    }
  }

  family.add("bounds and deltas at the ends of int64", [](Trial& t) {
    Call call = t.call({.sq = 9, .sk = 12, .d = 8});
    for (const Bound& left : {Bound{}, Bound{lowest}, Bound{lowest + 1}, Bound{0}, Bound{highest}}) {
      for (const Bound& right : {Bound{}, Bound{lowest}, Bound{0}, Bound{highest - 1}, Bound{highest}}) {
        for (const std::int64_t delta : {lowest, std::int64_t{-4}, std::int64_t{0}, std::int64_t{3}, highest}) {
          call.settings.band = {.left = left, .right = right, .delta = delta};
          t.collect(call);
        }
        call.settings.band = {.left = left, .right = right, .alignment = Alignment::bottom_right};
        t.collect(call);
      }
    }
    t.judge_collected();
  });

  family.add("B11 one query, causal: the corner decides", [](Trial& t) {
    Call call = t.call({.sk = 8, .d = 4});
    call.settings.band = {.causal = true, .alignment = Alignment::top_left};
    const Outputs first = t.check(call);
    t.expect_same_bits(first.o, sliced(relaid(call.v, Layout::exact), 2, 0, 1), "top-left sees key 0 only");
    Call full = call;
    full.settings.band = {};
    call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
    const Outputs everything = t.check(full);
    t.expect_near(t.check(call).o, [&](std::int64_t n) { return everything.o.get(n); }, 4 * t.eps(), "all keys, o");
  });

  constexpr std::int64_t flips[][2] = {{32, 1024}, {1024, 32}, {33, 31}, {31, 33}};
  for (const auto& [sq, sk] : flips) {
    family.add_slow("B13 one corner rule for all, Sq=" + std::to_string(sq) + " Sk=" + std::to_string(sk),
                    [sq = sq, sk = sk](Trial& t) {
                      for (const Alignment alignment : {Alignment::top_left, Alignment::bottom_right}) {
                        Call call = t.call({.b = 1, .hq = 2, .hkv = 2, .sq = sq, .sk = sk, .d = 64}, Layout::bshd);
                        call.settings.band = {.causal = true, .alignment = alignment};
                        t.check(call, 64);
                        // The same as an explicit mask.
                        Call masked = call;
                        masked.settings.band = {};
                        masked.mask = laid_out(DType::boolean, {sq, sk}, Layout::contiguous);
                        const std::int64_t delta = alignment == Alignment::top_left ? 0 : sk - sq;
                        fill(masked.mask, [&](std::int64_t flat) { return flat % sk <= flat / sk + delta ? 1 : 0; });
                        t.check(masked, 64);
                      }
                    },
                    {DType::float32, DType::float16});
  }

  family.add("B18 causal: every head is computed", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 4, .hkv = 4, .sq = 16, .sk = 16, .d = 32});
    call.settings.band.causal = true;
    const Outputs all = t.check(call);
    for (std::int64_t h = 0; h < 4; ++h) {
      Call alone = call;
      for (Tensor* tensor : {&alone.q, &alone.k, &alone.v}) *tensor = sliced(*tensor, 1, h, h + 1);
      add_outputs(alone);
      const Tensor head = sliced(all.o, 1, h, h + 1);
      t.expect_near(t.run(alone).o, [&](std::int64_t n) { return head.get(n); }, 4 * t.eps(), "a head alone, o");
    }
  });

  for (const std::int64_t right : {std::int64_t{0x7fffffff}, std::int64_t{7}}) {
    family.add("B80 right window " + std::to_string(right) + " with Sq > Sk hides nothing", [right](Trial& t) {
      Call call = t.call({.sq = 8, .sk = 4, .d = 16});
      Call full = call;
      call.settings.band = {.right = right, .alignment = Alignment::bottom_right};
      const Outputs everything = t.check(full);
      t.expect_near(t.check(call).o, [&](std::int64_t n) { return everything.o.get(n); }, 4 * t.eps(), "no window, o");
    });
  }

  family.add("B81 two-sided window, Sq far from Sk", [](Trial& t) {
    Call call = t.call({.sq = 129, .sk = 64, .d = 64});
    call.settings.band = {.left = 32, .right = 64, .alignment = Alignment::bottom_right};
    const Outputs outputs = t.check(call);
    for (std::int64_t column = 0; column < 64; ++column) {
      t.expect(outputs.o.get(column) == 0, "row 0 sees no key and must be 0");
      t.expect(outputs.o.get(64 + column) == call.v.get(column), "row 1 sees key 0 only and must be its value");
    }
  });

  family.add("B83 a window of W keys counts the current one: left = W - 1", [](Trial& t) {
    Call call = one_hot(t, 10);
    call.settings.band = {.causal = true, .left = 1};
    const Outputs outputs = t.check(call);
    for (std::int64_t flat = 0; flat < 100; ++flat) {
      const std::int64_t i = flat / 10;
      const std::int64_t j = flat % 10;
      t.expect((outputs.o.get(flat) > 0) == (j == i || j == i - 1), "W = 2 sees keys i - 1 and i");
    }
  });

  family.add("an empty band", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 2, .sq = 20, .sk = 20, .d = 8});
    call.settings.band = {.left = -3, .right = 2};
    t.check(call);
  });
}

}  // namespace tilewise::verify
