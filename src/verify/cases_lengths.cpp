// Padding, packed sequences, paged keys: which rows belong to whom.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

using Ints = std::vector<std::int64_t>;

Tensor integers(const Ints& values, DType dtype = DType::int32) {
  return vector_of(dtype, std::vector<double>(values.begin(), values.end()));
}

// Integers two elements apart, poison between.
Tensor spread(const Ints& values, DType dtype) {
  Tensor tensor = laid_out(dtype, {static_cast<std::int64_t>(values.size())}, Layout::every_other);
  fill(tensor, [&](std::int64_t flat) { return static_cast<double>(values[static_cast<std::size_t>(flat)]); });
  return tensor;
}

Ints offsets_of(const Ints& lengths) {
  Ints offsets(lengths.size() + 1);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return offsets;
}

void poison_rows(Tensor& tensor, std::int64_t b, std::int64_t from) {
  const auto& shape = tensor.shape();
  for (std::int64_t h = 0; h < shape[1]; ++h) {
    for (std::int64_t s = from; s < shape[2]; ++s) {
      for (std::int64_t d = 0; d < shape[3]; ++d) {
        tensor.set_bits(flat_index(tensor, b, h, s, d), ~std::uint64_t{0} >> (64 - 8 * size_of(tensor.dtype())));
      }
    }
  }
}

struct Packing {
  Ints q_slots;
  Ints k_slots;
  Ints q_used{};  // lengths below the slots; empty: full
  Ints k_used{};
  std::int64_t hq = 2;
  std::int64_t hkv = 1;
  std::int64_t d = 16;
  std::int64_t unowned = 0;  // rows after the last sequence, in q and in k
  DType offsets = DType::int32;
};

Call packed(Trial& t, const Packing& packing) {
  const Ints cu_q = offsets_of(packing.q_slots);
  const Ints cu_k = offsets_of(packing.k_slots);
  Call call = t.call({.hq = packing.hq,
                      .hkv = packing.hkv,
                      .sq = cu_q.back() + packing.unowned,
                      .sk = cu_k.back() + packing.unowned,
                      .d = packing.d});
  call.cu_q = integers(cu_q, packing.offsets);
  call.cu_k = spread(cu_k, packing.offsets);
  if (!packing.q_used.empty()) call.q_lengths = integers(packing.q_used, packing.offsets);
  if (!packing.k_used.empty()) call.kv_lengths = integers(packing.k_used, DType::int64);
  poison_rows(call.q, 0, cu_q.back());
  poison_rows(call.k, 0, cu_k.back());
  poison_rows(call.v, 0, cu_k.back());
  return call;
}

const Band full_band{};
const Band causal_top_left{.causal = true, .alignment = Alignment::top_left};
const Band causal_bottom_right{.causal = true, .alignment = Alignment::bottom_right};
const Band window{.left = 9, .right = 2, .alignment = Alignment::bottom_right};

void check_bands(Trial& t, Call& call, std::size_t max_rows = all_rows) {
  for (const Band& band : {full_band, causal_top_left, causal_bottom_right, window}) {
    call.settings.band = band;
    t.collect(call, max_rows);
  }
  t.judge_collected();
}

// Pools of pages in random order. Rows past a sequence's length, pages of nobody and table entries past the last page
// in use are poison.
struct Paging {
  Ints lengths;
  std::int64_t page_size = 4;
  std::int64_t max_pages = 0;  // 0: as many as the longest needs
  std::int64_t hkv = 1;
  std::int64_t d = 16;
  std::int64_t dv = -1;
  Layout pool = Layout::contiguous;
};

void page(Trial& t, Call& call, const Paging& paging) {
  const auto sequences = static_cast<std::int64_t>(paging.lengths.size());
  const auto pages_of = [&](std::int64_t length) { return (length + paging.page_size - 1) / paging.page_size; };
  std::int64_t most = 1;
  std::int64_t used = 0;
  for (const std::int64_t length : paging.lengths) {
    most = std::max(most, pages_of(length));
    used += pages_of(length);
  }
  const std::int64_t max_pages = std::max(most, paging.max_pages);
  const std::int64_t pool = used + 3;
  Ints order(static_cast<std::size_t>(pool));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t n = pool - 1; n > 0; --n) {
    std::swap(order[static_cast<std::size_t>(n)], order[static_cast<std::size_t>(t.random().below(n + 1))]);
  }

  call.k = laid_out(t.dtype(), {pool, paging.hkv, paging.page_size, paging.d}, paging.pool);
  call.v = laid_out(t.dtype(), {pool, paging.hkv, paging.page_size, paging.dv < 0 ? paging.d : paging.dv}, paging.pool);
  for (std::int64_t n = 0; n < pool; ++n) {
    poison_rows(call.k, n, 0);
    poison_rows(call.v, n, 0);
  }
  call.block_table = laid_out(DType::int32, {sequences, max_pages}, Layout::padded_rows);
  std::size_t next = 0;
  for (std::int64_t b = 0; b < sequences; ++b) {
    const std::int64_t length = paging.lengths[static_cast<std::size_t>(b)];
    for (std::int64_t n = 0; n < pages_of(length); ++n) {
      const std::int64_t at = order[next++];
      call.block_table.set(b * max_pages + n, static_cast<double>(at));
      const std::int64_t rows = std::min(paging.page_size, length - n * paging.page_size);
      for (std::int64_t h = 0; h < paging.hkv; ++h) {
        for (std::int64_t s = 0; s < rows; ++s) {
          for (Tensor* tensor : {&call.k, &call.v}) {
            for (std::int64_t d = 0; d < tensor->shape()[3]; ++d) {
              tensor->set(flat_index(*tensor, at, h, s, d), t.random().normal());
            }
          }
        }
      }
    }
    for (std::int64_t n = pages_of(length); n < max_pages; ++n) call.block_table.set(b * max_pages + n, -1);
  }
  call.kv_lengths = integers(paging.lengths);
}

}  // namespace

void add_length_cases(std::vector<Case>& cases) {
  Family family(cases, "lengths");
  for (const DType dtype : {DType::int32, DType::int64}) {
    family.add(std::string("B10 ragged lengths, ") + name_of(dtype), [dtype](Trial& t) {
      Call call = t.call({.b = 5, .hq = 2, .hkv = 1, .sq = 33, .sk = 70, .d = 16});
      const Ints q_lengths{33, 1, 0, 17, 20};
      const Ints kv_lengths{70, 64, 5, 0, 33};
      call.q_lengths = spread(q_lengths, dtype);
      call.kv_lengths = integers(kv_lengths, dtype);
      for (std::int64_t b = 0; b < 5; ++b) {
        poison_rows(call.q, b, q_lengths[static_cast<std::size_t>(b)]);
        poison_rows(call.k, b, kv_lengths[static_cast<std::size_t>(b)]);
        poison_rows(call.v, b, kv_lengths[static_cast<std::size_t>(b)]);
      }
      check_bands(t, call);
      call.sinks = t.normal_f32({2});
      check_bands(t, call);
    });
  }
  family.add("B10 the real 4 x 4 part of 8 x 8", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 2, .sq = 8, .sk = 8, .d = 8});
    Call cut = call;
    for (Tensor* tensor : {&cut.q, &cut.k, &cut.v}) *tensor = sliced(*tensor, 2, 0, 4);
    add_outputs(cut);
    const Outputs truncated = t.check(cut);
    call.q_lengths = integers({4});
    call.kv_lengths = integers({4});
    const Outputs padded = t.check(call);
    const Tensor part = sliced(padded.o, 2, 0, 4);
    t.expect_near(part, [&](std::int64_t n) { return truncated.o.get(n); }, 4 * t.eps(), "the truncated problem, o");
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t flat = h * 64 + 32; flat < (h + 1) * 64; ++flat) {
        t.expect(padded.o.get(flat) == 0, "padded rows are 0");
      }
    }
  });
  for (const auto& valid : {Ints{8, 5}, Ints{1, 2}, Ints{0, 8}}) {
    family.add("B15 a static cache's valid length moves the diagonal, " + std::to_string(valid[0]) + " and " +
                   std::to_string(valid[1]),
               [valid](Trial& t) {
                 for (const std::int64_t sq : {1, 3}) {
                   Call call = t.call({.b = 2, .hq = 4, .hkv = 2, .sq = sq, .sk = 8, .d = 8});
                   call.kv_lengths = integers(valid);
                   call.settings.band = causal_bottom_right;
                   poison_rows(call.k, 0, valid[0]);
                   poison_rows(call.v, 1, valid[1]);
                   t.check(call);
                 }
               });
  }
  family.add("B15 a valid length below Sq leaves early rows empty", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 2, .sq = 4, .sk = 4, .d = 8});
    call.kv_lengths = integers({2});
    call.settings.band = causal_bottom_right;
    const Outputs outputs = t.check(call);
    for (std::int64_t flat = 0; flat < 16; ++flat) t.expect(outputs.o.get(flat) == 0, "rows 0 and 1 see no key");
  });
  family.add("B65 a sentence batch of ragged lengths, key padding only", [](Trial& t) {
    Call call = t.call({.b = 8, .hq = 2, .hkv = 2, .sq = 40, .sk = 40, .d = 32}, Layout::bshd);
    call.kv_lengths = integers({3, 40, 17, 1, 33, 32, 39, 8});
    t.check(call);
  });
  family.add("lengths with mask, bias, window, ALiBi and sinks at once", [](Trial& t) {
    Call call = t.call({.b = 3, .hq = 2, .hkv = 1, .sq = 19, .sk = 83, .d = 24, .dv = 9});
    call.q_lengths = integers({19, 11, 4});
    call.kv_lengths = integers({83, 20, 66});
    call.mask = t.random_mask({3, 1, 19, 83}, 0.6);
    call.bias = t.normal_f32({2, 1, 83});
    call.alibi_slopes = t.normal_f32({3, 2}, 0.1);
    call.sinks = t.normal_f32({2});
    call.settings.softcap = 3;
    check_bands(t, call);
  });
  family.add("equal lengths for the whole batch, stride 0", [](Trial& t) {
    Call call = t.call({.b = 3, .hq = 1, .hkv = 1, .sq = 9, .sk = 30, .d = 8});
    call.kv_lengths = expanded(DType::int32, {3}, {true});
    fill_constant(call.kv_lengths, 21);
    check_bands(t, call);
  });
}

void add_packed_cases(std::vector<Case>& cases) {
  Family family(cases, "packed");
  const auto add = [&family](const std::string& name, const Packing& packing, bool slow = false) {
    family.add(
        name,
        [packing](Trial& t) {
          Call call = packed(t, packing);
          check_bands(t, call, 120);
        },
        every_float, slow);
  };
  add("one sequence", {.q_slots = {40}, .k_slots = {70}});
  add("ragged sequences", {.q_slots = {17, 1, 64, 3}, .k_slots = {33, 5, 65, 128}, .hq = 4, .hkv = 2});
  add("int64 offsets", {.q_slots = {5, 20, 9}, .k_slots = {8, 20, 3}, .offsets = DType::int64});
  add("rows that no sequence owns", {.q_slots = {7, 12}, .k_slots = {20, 30}, .unowned = 13});
  add("lengths below the slots",
      {.q_slots = {17, 10, 33}, .k_slots = {40, 16, 70}, .q_used = {9, 0, 33}, .k_used = {40, 3, 0}, .unowned = 2});
  add("B71 lengths 65, 1, 200 under grouped heads",
      {.q_slots = {65, 1, 200}, .k_slots = {65, 1, 200}, .hq = 4, .d = 32}, true);
  add("B73 an empty query segment beside real keys, D=256",
      {.q_slots = {0, 75, 53, 0}, .k_slots = {158, 109, 52, 192}, .hq = 4, .d = 256}, true);
  add("B75 one key a sequence", {.q_slots = {76, 34, 146}, .k_slots = {1, 1, 1}, .hq = 1, .d = 32});
  add("B76 empty sequences between single queries",
      {.q_slots = {0, 1, 0, 1}, .k_slots = {0, 3, 0, 5}, .hq = 9, .hkv = 3, .d = 64});
  add("B76 one token in four sequences", {.q_slots = {0, 0, 1, 0}, .k_slots = {0, 0, 1, 0}, .hq = 2, .d = 8});
  add("no token at all", {.q_slots = {0, 0}, .k_slots = {0, 0}, .unowned = 3});
  family.add("no sequence at all: every row is padding", [](Trial& t) {
    Call call = packed(t, {.q_slots = {}, .k_slots = {}, .unowned = 4});
    t.check(call);
  });

  family.add("B75 bottom-right: only the last query sees the key", [](Trial& t) {
    Call call = packed(t, {.q_slots = {7, 3}, .k_slots = {1, 1}, .hq = 1, .d = 8});
    call.settings.band = causal_bottom_right;
    const Outputs outputs = t.check(call);
    for (std::int64_t i = 0; i < 10; ++i) {
      const bool last = i == 6 || i == 9;
      for (std::int64_t d = 0; d < 8; ++d) {
        const double expected = last ? call.v.get((i == 6 ? 0 : 8) + d) : 0;
        t.expect(outputs.o.get(i * 8 + d) == expected, "the last row is the value, all others are 0");
      }
    }
  });
  family.add("every sequence equals the run on it alone", [](Trial& t) {
    const Ints q_slots{9, 0, 30, 5};
    const Ints k_slots{20, 4, 77, 5};
    Call call = packed(t, {.q_slots = q_slots, .k_slots = k_slots, .hq = 4, .hkv = 2});
    call.settings.band = causal_bottom_right;
    const Outputs together = t.check(call);
    const Ints cu_q = offsets_of(q_slots);
    const Ints cu_k = offsets_of(k_slots);
    for (std::size_t s = 0; s < q_slots.size(); ++s) {
      Call alone = call;
      alone.cu_q = {};
      alone.cu_k = {};
      alone.q = sliced(call.q, 2, cu_q[s], cu_q[s + 1]);
      alone.k = sliced(call.k, 2, cu_k[s], cu_k[s + 1]);
      alone.v = sliced(call.v, 2, cu_k[s], cu_k[s + 1]);
      add_outputs(alone);
      const Tensor part = sliced(together.o, 2, cu_q[s], cu_q[s + 1]);
      t.expect_near(t.run(alone).o, [&](std::int64_t n) { return part.get(n); }, 4 * t.eps(), "a sequence alone");
    }
  });
  family.add("packed with ALiBi by sequence, sinks and softcap", [](Trial& t) {
    Call call = packed(t, {.q_slots = {11, 29}, .k_slots = {50, 29}, .q_used = {8, 29}, .k_used = {41, 20}, .hq = 4});
    call.alibi_slopes = t.normal_f32({2, 4}, 0.2);
    call.sinks = t.normal_f32({4});
    call.settings.softcap = 4;
    check_bands(t, call);
  });
  family.add("packed with dropout: b counts sequences, i and j count inside", [](Trial& t) {
    Call call = packed(t, {.q_slots = {11, 0, 29}, .k_slots = {50, 6, 29}, .hq = 4, .hkv = 2});
    call.settings.dropout = Dropout{.p = 0.4, .seed = 0x123456789ABCDEFu, .offset = 7};
    check_bands(t, call);
  });
  family.add("packed, strided outputs", [](Trial& t) {
    Call call = packed(t, {.q_slots = {17, 5}, .k_slots = {20, 40}, .hq = 3, .unowned = 4});
    add_outputs(call, Layout::padded_rows);
    check_bands(t, call);
  });
}

void add_paged_cases(std::vector<Case>& cases) {
  Family family(cases, "paged");
  for (const std::int64_t page_size : {1, 3, 16, 64}) {
    for (const std::int64_t sq : {1, 6}) {
      family.add("pages of " + std::to_string(page_size) + ", Sq=" + std::to_string(sq), [=](Trial& t) {
        Call call = t.call({.b = 4, .hq = 4, .hkv = 2, .sq = sq, .sk = 1, .d = 16});
        page(t, call, {.lengths = {70, 0, 33, 64}, .page_size = page_size, .hkv = 2});
        check_bands(t, call);
      });
    }
  }
  for (const Layout layout : {Layout::bshd, Layout::padded_rows, Layout::reversed_rows, Layout::columns_apart}) {
    family.add(std::string("pools, ") + name_of(layout), [layout](Trial& t) {
      Call call = t.call({.b = 2, .hq = 4, .hkv = 2, .sq = 5, .sk = 1, .d = 24});
      page(t, call, {.lengths = {45, 18}, .page_size = 8, .max_pages = 9, .hkv = 2, .d = 24, .dv = 7, .pool = layout});
      call.v = relaid(call.v, Layout::contiguous);
      add_outputs(call);
      check_bands(t, call);
    });
  }
  family.add("two sequences share a prefix of pages", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 2, .hkv = 1, .sq = 4, .sk = 1, .d = 16});
    page(t, call, {.lengths = {40, 40}, .page_size = 8});
    for (std::int64_t n = 0; n < 3; ++n) call.block_table.set(5 + n, call.block_table.get(n));
    check_bands(t, call);
  });
  family.add("pages equal the contiguous run", [](Trial& t) {
    Call call = t.call({.hq = 4, .hkv = 2, .sq = 7, .sk = 1, .d = 16});
    page(t, call, {.lengths = {90}, .page_size = 16, .hkv = 2});
    call.settings.band = causal_bottom_right;
    const Outputs paged = t.check(call);
    Call plain = t.call({.hq = 4, .hkv = 2, .sq = 7, .sk = 90, .d = 16});
    plain.q = call.q;
    plain.settings = call.settings;
    for (std::int64_t j = 0; j < 90; ++j) {
      const auto at = static_cast<std::int64_t>(call.block_table.get(j / 16));
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 16; ++d) {
          plain.k.set(flat_index(plain.k, 0, h, j, d), call.k.get(flat_index(call.k, at, h, j % 16, d)));
          plain.v.set(flat_index(plain.v, 0, h, j, d), call.v.get(flat_index(call.v, at, h, j % 16, d)));
        }
      }
    }
    t.expect_near(t.run(plain).o, [&](std::int64_t n) { return paged.o.get(n); }, 4 * t.eps(), "the contiguous run, o");
  });
  family.add("packed queries over pages", [](Trial& t) {
    Call call = t.call({.hq = 4, .hkv = 2, .sq = 23, .sk = 1, .d = 16});
    page(t, call, {.lengths = {33, 0, 70}, .page_size = 8, .hkv = 2});
    call.cu_q = integers({0, 4, 9, 20});
    poison_rows(call.q, 0, 20);
    check_bands(t, call);
    call.q_lengths = integers({4, 2, 0});
    check_bands(t, call);
  });
  family.add("pages with mask, bias, ALiBi, sinks, softcap and dropout", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 2, .hkv = 1, .sq = 5, .sk = 1, .d = 16});
    page(t, call, {.lengths = {29, 40}, .page_size = 8, .max_pages = 6});
    call.mask = t.random_mask({2, 1, 5, 48}, 0.7);
    call.bias = t.normal_f32({48});
    call.alibi_slopes = t.normal_f32({2}, 0.1);
    call.sinks = t.normal_f32({2});
    call.settings.softcap = 5;
    call.settings.dropout = Dropout{.p = 0.25, .seed = 99};
    check_bands(t, call);
  });
  family.add("B70 a window over a cache of 4090 keys in pages of 16, NaN outside", [](Trial& t) {
    Call call = t.call({.hq = 4, .hkv = 1, .sq = 2, .sk = 1, .d = 32});
    page(t, call, {.lengths = {4090}, .page_size = 16, .d = 32});
    call.settings.band = {.causal = true, .left = 127, .alignment = Alignment::bottom_right};
    for (std::int64_t j = 0; j < 4090 - 2 - 127; ++j) {
      const auto at = static_cast<std::int64_t>(call.block_table.get(j / 16));
      for (Tensor* tensor : {&call.k, &call.v}) {
        for (std::int64_t d = 0; d < 32; ++d) tensor->set(flat_index(*tensor, at, 0, j % 16, d), std::nan(""));
      }
    }
    t.check(call);
  });
}

}  // namespace tilewise::verify
