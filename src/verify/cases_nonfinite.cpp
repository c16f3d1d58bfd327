// NaN and infinities: what is visible reaches the output, what is not never does.
#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

const double nan_value = std::numeric_limits<double>::quiet_NaN();

using Sees = std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>;

// A way of hiding keys: sets the call up, and says who sees what.
struct Hiding {
  const char* name;
  std::function<Sees(Trial&, Call&)> apply;
};

const Shape hidden_shape{.b = 2, .hq = 4, .hkv = 2, .sq = 37, .sk = 141, .d = 16};
constexpr std::int64_t sq = 37;
constexpr std::int64_t sk = 141;

Sees by_mask(Call& call, const Tensor& mask) {
  call.mask = mask;
  return [mask](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const auto& shape = mask.shape();
    return mask.get(flat_index(mask, shape[0] > 1 ? b : 0, shape[1] > 1 ? h : 0, shape[2] > 1 ? i : 0, j)) != 0;
  };
}

const Hiding hidings[] = {
    {"a mask", [](Trial& t, Call& call) { return by_mask(call, t.random_mask({2, 4, sq, sk}, 0.5)); }},
    {"a mask over keys alone", [](Trial& t, Call& call) { return by_mask(call, t.random_mask({2, 1, 1, sk}, 0.5)); }},
    {"a sparse mask", [](Trial& t, Call& call) { return by_mask(call, t.random_mask({1, 1, sq, sk}, 0.03)); }},
    {"a bias of -inf",
     [](Trial& t, Call& call) {
       call.bias = t.normal_f32({1, 4, sq, sk});
       fill(call.bias, [&](std::int64_t) { return t.random().below(2) == 0 ? -infinity : t.random().normal(); });
       return Sees([bias = call.bias](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j) {
         return bias.get(flat_index(bias, 0, h, i, j)) != -infinity;
       });
     }},
    {"causality",
     [](Trial&, Call& call) {
       call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
       return Sees([](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) { return j <= i + sk - sq; });
     }},
    {"a window",
     [](Trial&, Call& call) {
       call.settings.band = {.left = 20, .right = 3, .alignment = Alignment::top_left};
       return Sees(
           [](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) { return i - 20 <= j && j <= i + 3; });
     }},
    {"lengths",
     [](Trial&, Call& call) {
       call.kv_lengths = vector_of(DType::int32, {66, 100});
       return Sees([](std::int64_t b, std::int64_t, std::int64_t, std::int64_t j) { return j < (b == 0 ? 66 : 100); });
     }},
};

void set_key(Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t j, double value) {
  for (std::int64_t d = 0; d < tensor.shape()[3]; ++d) tensor.set(flat_index(tensor, b, h, j, d), value);
}

// Up to seven keys that at least a quarter of the rows see none of; `touched` says which rows see one.
std::vector<std::int64_t> keys_to_poison(Trial& t, const Sees& sees, std::vector<bool>& touched) {
  touched.assign(static_cast<std::size_t>(2 * 4 * sq), false);
  std::vector<std::int64_t> keys;
  for (int attempt = 0; attempt < 400 && keys.size() < 7; ++attempt) {
    const std::int64_t j =
        attempt < 8 ? std::array<std::int64_t, 8>{140, 127, 128, 64, 63, 105, 0, 100}[static_cast<std::size_t>(attempt)]
                    : t.random().below(sk);
    std::vector<bool> wider = touched;
    for (std::int64_t row = 0; row < 2 * 4 * sq; ++row) {
      if (sees(row / (4 * sq), row / sq % 4, row % sq, j)) wider[static_cast<std::size_t>(row)] = true;
    }
    if (std::count(wider.begin(), wider.end(), false) < 2 * sq) continue;
    touched = wider;
    keys.push_back(j);
  }
  t.expect(!keys.empty(), "the case is wrong: every key is seen by nearly every row");
  return keys;
}

// The same bits on CPUs. A GPU may compute a row that was tainted again, in another order: within 8 eps there.
bool is_same(const Tensor& actual, const Tensor& expected, std::int64_t flat, Device device) {
  if (actual.bits(flat) == expected.bits(flat)) return true;
  const double difference = std::fabs(actual.get(flat) - expected.get(flat));
  return device.kind != DeviceKind::cpu &&
         difference <= 8 * epsilon_of(actual.dtype()) * std::max(1.0, std::fabs(expected.get(flat)));
}

// Poison in some keys against zeros in them: whoever sees none of these keys does not notice.
void never_leaks(Trial& t, const Hiding& hiding, double poison, bool in_keys, bool in_values) {
  Call call = t.call(hidden_shape);
  const Sees sees = hiding.apply(t, call);
  std::vector<bool> touched;
  const std::vector<std::int64_t> poisoned = keys_to_poison(t, sees, touched);

  Call clean = call;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (const std::int64_t j : poisoned) {
        if (in_keys) {
          set_key(clean.k, b, h, j, 0);
          set_key(call.k, b, h, j, poison);
        }
        if (in_values) {
          set_key(clean.v, b, h, j, 0);
          set_key(call.v, b, h, j, poison);
        }
      }
    }
  }
  const Outputs expected = t.run(clean);
  const Outputs outputs = t.run(call);
  for (std::int64_t row = 0; row < 2 * 4 * sq; ++row) {
    if (touched[static_cast<std::size_t>(row)]) continue;
    bool same = is_same(outputs.lse, expected.lse, row, call.device);
    for (std::int64_t d = 0; d < 16; ++d) same = same && is_same(outputs.o, expected.o, row * 16 + d, call.device);
    t.expect(same, "row b=" + std::to_string(row / (4 * sq)) + " h=" + std::to_string(row / sq % 4) +
                       " i=" + std::to_string(row % sq) + " changed with keys that it does not see");
  }
}

// One key poisoned for all that see it, and hidden from half of the queries.
void reaches_those_who_see(Trial& t, double poison, bool in_keys) {
  Call call = t.call({.hq = 2, .hkv = 1, .sq = 33, .sk = 90, .d = 8});
  call.mask = t.random_mask({1, 2, 33, 90}, 0.7);
  Tensor& tensor = in_keys ? call.k : call.v;
  tensor.set(flat_index(tensor, 0, 0, 70, 3), poison);
  t.check(call);
}

void set_row(Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i, Random& random, double poison) {
  for (std::int64_t d = 0; d < tensor.shape()[3]; ++d) {
    tensor.set(flat_index(tensor, b, h, i, d), random.below(3) == 0 ? poison : 5 * random.normal());
  }
}

// Everything about the other rows changes: their queries, masks and biases. This row's bits do not.
void ignores_neighbours(Trial& t, double poison, bool masked, bool biased, const Band& band) {
  Call call = t.call({.b = 2, .hq = 4, .hkv = 2, .sq = 37, .sk = 141, .d = 16});
  call.settings.band = band;
  if (masked) call.mask = t.random_mask({2, 4, sq, sk}, 0.5);
  if (biased) call.bias = t.normal_f32({2, 4, sq, sk});
  const Outputs expected = t.run(call);
  for (const std::int64_t kept : {0, 1, 7, 16, 35, 36}) {
    Call other = call;
    for (std::int64_t row = 0; row < 2 * 4 * sq; ++row) {
      if (row == kept + sq) continue;  // item 0, head 1
      set_row(other.q, row / (4 * sq), row / sq % 4, row % sq, t.random(), poison);
      for (std::int64_t j = 0; j < sk; ++j) {
        const bool hidden = t.random().below(20) != 0;
        if (masked) other.mask.set(row * sk + j, hidden ? 0 : 1);
        if (biased) other.bias.set(row * sk + j, hidden ? -infinity : 30 * t.random().normal());
      }
    }
    const Outputs outputs = t.run(other);
    const std::int64_t row = kept + sq;
    bool same = is_same(outputs.lse, expected.lse, row, call.device);
    for (std::int64_t d = 0; d < 16; ++d) same = same && is_same(outputs.o, expected.o, row * 16 + d, call.device);
    t.expect(same, "row " + std::to_string(kept) + " of head 1 changed with its neighbours");
  }
}

// All keys score 0 but one: its weight is 5e-42, or 1e-317 in float64. GPUs flush such numbers to 0.
void weigh_key_subnormally(Call& call, std::int64_t key) {
  if (call.device.kind != DeviceKind::cpu) throw CaseSkipped("subnormal numbers are CPUs' alone");
  const double score = call.q.dtype() == DType::float64 ? -730 : -95;
  const std::int64_t d = call.k.shape()[3];
  call.settings.scale = 1;
  fill_constant(call.q, 1);
  fill_constant(call.k, 0);
  for (std::int64_t c = 0; c < d; ++c) call.k.set(key * d + c, score / static_cast<double>(d));
}

}  // namespace

void add_nonfinite_cases(std::vector<Case>& cases) {
  Family family(cases, "nonfinite");
  family.add("NaN in one query: its row alone", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 1, .sq = 35, .sk = 70, .d = 16});
    call.q.set(flat_index(call.q, 0, 1, 20, 5), nan_value);
    t.check(call);
  });
  for (const bool in_keys : {true, false}) {
    for (const double poison : {nan_value, infinity, -infinity}) {
      if (in_keys && !std::isnan(poison)) continue;  // 0 * inf inside a dot product depends on the other factor
      family.add(std::to_string(poison) + " in a " + (in_keys ? "key" : "value") + ": every row that sees it",
                 [=](Trial& t) { reaches_those_who_see(t, poison, in_keys); });
    }
  }
  family.add("+inf and -inf in one column of V: NaN", [](Trial& t) {
    Call call = t.call({.sq = 9, .sk = 70, .d = 8});
    call.v.set(3 * 8 + 2, infinity);
    call.v.set(66 * 8 + 2, -infinity);
    t.check(call);
  });
  // Found by fuzzing: a weight that was flushed to 0 made NaN of it.
  family.add("an infinite value whose weight is subnormal", [](Trial& t) {
    for (const std::int64_t sq : {1, 9}) {
      Call call = t.call({.sq = sq, .sk = 70, .d = 4});
      weigh_key_subnormally(call, 5);
      call.v.set(5 * 4 + 2, infinity);
      t.check(call);
    }
  });
  family.add("a large value whose weight is subnormal",
             [](Trial& t) {
               for (const std::int64_t sq : {1, 9}) {
                 Call call = t.call({.sq = sq, .sk = 70, .d = 4});
                 weigh_key_subnormally(call, 5);
                 fill_normal(call.v, t.random(), 1e-6);
                 for (std::int64_t c = 0; c < 4; ++c) call.v.set(5 * 4 + c, t.largest() / 4);
                 t.check(call);
               }
             },
             {DType::float64, DType::float32, DType::bfloat16});
  family.add("a score of -inf weighs 0, one of +inf gives NaN", [](Trial& t) {
    for (const double value : {-infinity, infinity}) {
      Call call = t.call({.hq = 2, .hkv = 2, .sq = 9, .sk = 70, .d = 4});
      fill(call.q, [&](std::int64_t) { return 0.5 + t.random().uniform(); });
      for (const std::int64_t j : {0, 30, 69}) call.k.set(flat_index(call.k, 0, 1, j, 2), value);
      call.settings.band = {.causal = true, .alignment = Alignment::top_left};
      t.check(call);
    }
  });
  family.add("every visible score -inf: like an empty row", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 2, .sq = 9, .sk = 70, .d = 4});
    fill_constant(call.q, 1);
    for (std::int64_t j = 0; j < 70; ++j) call.k.set(flat_index(call.k, 0, 1, j, 2), -infinity);
    t.check(call);
    call.sinks = t.normal_f32({2});
    t.check(call);
  });
  family.add("softcap brings infinite scores back", [](Trial& t) {
    Call call = t.call({.sq = 9, .sk = 70, .d = 4});
    fill_constant(call.q, 1);
    call.k.set(10 * 4 + 1, infinity);
    call.k.set(40 * 4 + 1, -infinity);
    call.settings.softcap = 2;
    t.check(call);
  });
  for (const double bias : {nan_value, infinity}) {
    family.add("a bias of " + std::to_string(bias), [bias](Trial& t) {
      Call call = t.call({.sq = 9, .sk = 70, .d = 8});
      call.bias = t.normal_f32({9, 70});
      call.bias.set(4 * 70 + 66, bias);
      t.check(call);
    });
  }
  family.add("NaN where a guard for empty rows might swallow it", [](Trial& t) {
    // The only visible key of a row is NaN; rows beside it are empty or fine.
    Call call = t.call({.sq = 6, .sk = 70, .d = 8});
    call.mask = laid_out(DType::boolean, {6, 70}, Layout::contiguous);
    fill(call.mask, [](std::int64_t flat) {
      const std::int64_t i = flat / 70;
      const std::int64_t j = flat % 70;
      return i == 0 ? j == 5 : i == 1 ? 0 : i == 2 ? j == 69 : i == 3 ? j == 6 : j > 6 && j < 69;
    });
    set_key(call.k, 0, 0, 5, nan_value);
    set_key(call.k, 0, 0, 69, nan_value);
    set_key(call.v, 0, 0, 6, nan_value);
    const Outputs outputs = t.check(call);
    t.expect(std::isnan(outputs.o.get(0)) && std::isnan(outputs.o.get(16)) && std::isnan(outputs.o.get(24)),
             "a visible NaN reaches the output");
    t.expect(outputs.o.get(8) == 0, "an empty row is 0");
  });
  family.add("NaN after a finite maximum, block by block", [](Trial& t) {
    for (const std::int64_t j : {0, 1, 63, 64, 65, 128, 199}) {
      Call call = t.call({.sq = 3, .sk = 200, .d = 8});
      call.q.set(0, 1);
      call.k.set(j * 8, nan_value);
      t.check(call);
    }
  });
  for (const double poison : {nan_value, infinity, 1e10}) {
    family.add("B68 a hidden key of " + std::to_string(poison) + ": the run without it", [poison](Trial& t) {
      Call call = t.call({.sq = 2, .sk = 2, .d = 4});
      call.mask = laid_out(DType::boolean, {2}, Layout::contiguous);
      call.mask.set(0, 1);
      Call cut = call;
      cut.mask = {};
      cut.k = sliced(call.k, 2, 0, 1);
      cut.v = sliced(call.v, 2, 0, 1);
      const double value = std::isfinite(poison) ? std::min(poison, t.largest()) : poison;
      call.k.set(4, value);
      call.v.set(4, value);
      t.expect_same_bits(t.check(call), t.check(cut), "without the key");
    });
  }
  family.add("B70 NaN outside the window, group of 4", [](Trial& t) {
    Call call = t.call({.hq = 4, .hkv = 1, .sq = 3, .sk = 410, .d = 16});
    call.settings.band = {.causal = true, .left = 127, .alignment = Alignment::bottom_right};
    for (std::int64_t j = 0; j < 410 - 3 - 127; ++j) {
      set_key(call.k, 0, 0, j, nan_value);
      set_key(call.v, 0, 0, j, nan_value);
    }
    t.check(call);
  });
}

void add_isolation_cases(std::vector<Case>& cases) {
  Family family(cases, "isolation");
  for (const Hiding& hiding : hidings) {
    for (const auto& [what, value] :
         {std::pair<const char*, double>{"NaN", nan_value}, {"inf", infinity}, {"-inf", -infinity}, {"1e38", 1e38}}) {
      for (const auto& [where, in_keys, in_values] :
           {std::tuple{"keys", true, false}, std::tuple{"values", false, true}, std::tuple{"both", true, true}}) {
        Case& added = family.add(std::string(what) + " in " + where + " hidden by " + hiding.name,
                                 [&hiding, value = value, in_keys = in_keys, in_values = in_values](Trial& t) {
                                   never_leaks(t, hiding, std::isfinite(value) ? std::min(value, t.largest()) : value,
                                               in_keys, in_values);
                                 });
        added.similar = !std::isnan(value) && !(in_keys && in_values);
      }
    }
  }
  family.add("padding queries of NaN", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 2, .hkv = 1, .sq = 37, .sk = 70, .d = 16});
    call.q_lengths = vector_of(DType::int32, {20, 31});
    const Outputs expected = t.run(call);
    for (std::int64_t row = 0; row < 2 * 2 * 37; ++row) {
      const std::int64_t b = row / 74;
      if (row % 37 >= (b == 0 ? 20 : 31)) {
        for (std::int64_t d = 0; d < 16; ++d) call.q.set(row * 16 + d, nan_value);
      }
    }
    t.expect_same_bits(t.check(call), expected, "against ordinary padding");
  });
  const Band full{};
  const Band causal{.causal = true, .alignment = Alignment::bottom_right};
  const Band window{.left = 30, .right = 5, .alignment = Alignment::top_left};
  for (const auto& [what, poison] :
       {std::pair<const char*, double>{"NaN", nan_value}, {"inf", infinity}, {"large", 1e4}}) {
    for (const auto& [name, band] :
         {std::pair{"full", full}, std::pair{"causal", causal}, std::pair{"window", window}}) {
      for (const auto& [form, masked, biased] :
           {std::tuple{"", false, false}, std::tuple{", masked", true, false}, std::tuple{", biased", false, true}}) {
        Case& added = family.add("neighbours with " + std::string(what) + ", " + name + form,
                                 [poison = poison, band = band, masked = masked, biased = biased](Trial& t) {
                                   ignores_neighbours(t, poison, masked, biased, band);
                                 });
        added.similar = !std::isnan(poison) && !band.unbounded();
      }
    }
  }
}

}  // namespace tilewise::verify
