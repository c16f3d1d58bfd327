// Grouped heads and memory layouts.
#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

constexpr Layout every_layout[] = {Layout::exact,       Layout::contiguous,    Layout::bshd,
                                   Layout::fused,       Layout::padded_rows,   Layout::columns_apart,
                                   Layout::every_other, Layout::reversed_rows, Layout::reversed_columns,
                                   Layout::off_by_one,  Layout::heads_last};
// The call with all its tensors in other layouts must agree with the contiguous one to rounding, and with the oracle.
void agrees(Trial& t, Call& call, Layout q, Layout k, Layout v, Layout o) {
  const Outputs plain = t.run(call);
  Call other = call;
  other.q = relaid(call.q, q);
  other.k = relaid(call.k, k);
  other.v = relaid(call.v, v);
  add_outputs(other, o);
  const Outputs outputs = t.check(other, 120);
  t.expect_near(outputs.o, [&](std::int64_t n) { return plain.o.get(n); }, 4 * t.eps(), "the contiguous run, o");
}

}  // namespace

void add_gqa_cases(std::vector<Case>& cases) {
  Family family(cases, "gqa");
  for (const std::int64_t group : {1, 2, 3, 4, 7, 8, 71}) {
    for (const std::int64_t hkv : {1, 2, 5}) {
      if (group == 71 && hkv > 1) continue;
      family.add("group of " + std::to_string(group) + ", Hkv=" + std::to_string(hkv), [=](Trial& t) {
        Call call = t.call({.b = 2, .hq = group * hkv, .hkv = hkv, .sq = 5, .sk = 35, .d = 16});
        t.check(call, 700);
      });
    }
  }
  constexpr std::int64_t ratios[][2] = {{6, 2}, {12, 4}};
  for (const auto& [hq, hkv] : ratios) {
    family.add("B90 Hq=" + std::to_string(hq) + " Hkv=" + std::to_string(hkv) + " Dv=96 equals repeated heads",
               [hq = hq, hkv = hkv](Trial& t) {
                 Call grouped = t.call({.hq = hq, .hkv = hkv, .sq = 9, .sk = 33, .d = 64, .dv = 96});
                 const Outputs expected = t.check(grouped);
                 Call repeated = t.call({.hq = hq, .hkv = hq, .sq = 9, .sk = 33, .d = 64, .dv = 96});
                 repeated.q = grouped.q;
                 const std::int64_t group = hq / hkv;
                 fill(repeated.k,
                      [&](std::int64_t n) { return grouped.k.get(n / (33 * 64) / group * 33 * 64 + n % (33 * 64)); });
                 fill(repeated.v,
                      [&](std::int64_t n) { return grouped.v.get(n / (33 * 96) / group * 33 * 96 + n % (33 * 96)); });
                 const Outputs outputs = t.check(repeated);
                 t.expect_near(outputs.o, [&](std::int64_t n) { return expected.o.get(n); }, 4 * t.eps(), "o");
               });
  }
  family.add("B91 a distinct constant value per KV head", [](Trial& t) {
    Call call = t.call({.hq = 8, .hkv = 2, .sq = 3, .sk = 40, .d = 16});
    const auto number_of_head = [](std::int64_t flat) {
      const std::int64_t head = flat / (40 * 16);
      return static_cast<double>(head + 1);
    };
    fill(call.k, number_of_head);
    fill(call.v, number_of_head);
    const Outputs outputs = t.check(call);
    t.expect_near(
        outputs.o, [](std::int64_t flat) { return flat / (3 * 16) < 4 ? 1.0 : 2.0; }, 4 * t.eps(),
        "query head h uses KV head h / 4, o");
  });
  family.add("grouped heads with a mask, bias, slope and sink of their own", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 6, .hkv = 2, .sq = 10, .sk = 70, .d = 16});
    call.mask = t.random_mask({2, 6, 10, 70}, 0.5);
    call.bias = t.normal_f32({6, 1, 70});
    call.alibi_slopes = t.normal_f32({2, 6}, 0.1);
    call.sinks = t.normal_f32({6}, 2);
    call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
    t.check(call);
  });
  family.add("one query over many heads of one KV head", [](Trial& t) {
    Call call = t.call({.b = 3, .hq = 16, .hkv = 1, .sk = 130, .d = 32});
    call.kv_lengths = vector_of(DType::int32, {130, 7, 65});
    t.check(call);
  });
}

void add_layout_cases(std::vector<Case>& cases) {
  Family family(cases, "layouts");
  for (const Layout layout : every_layout) {
    family.add(std::string("all of q, k, v, o: ") + name_of(layout), [layout](Trial& t) {
      Call call = t.call({.b = 2, .hq = 4, .hkv = 2, .sq = 19, .sk = 41, .d = 24, .dv = 17}, Layout::exact);
      agrees(t, call, layout, layout, layout, layout);
    });
  }
  // Each tensor alone, so that one tensor's strides standing in for another's is seen.
  for (int which = 0; which < 4; ++which) {
    for (const Layout layout : {Layout::bshd, Layout::padded_rows, Layout::columns_apart, Layout::every_other,
                                Layout::reversed_rows, Layout::reversed_columns, Layout::heads_last}) {
      const char* const names[] = {"q", "k", "v", "o"};
      family.add("B21 " + std::string(names[which]) + " alone: " + name_of(layout), [=](Trial& t) {
        Call call = t.call({.b = 2, .hq = 2, .hkv = 2, .sq = 18, .sk = 40, .d = 16}, Layout::exact);
        std::array<Layout, 4> layouts{Layout::exact, Layout::exact, Layout::exact, Layout::exact};
        layouts[static_cast<std::size_t>(which)] = layout;
        agrees(t, call, layouts[0], layouts[1], layouts[2], layouts[3]);
      });
    }
  }
  family.add("B20 a tiny sequence, a large batch, permuted views", [](Trial& t) {
    Call call = t.call({.b = 84, .hq = 3, .hkv = 3, .sq = 3, .sk = 3, .d = 64}, Layout::exact);
    agrees(t, call, Layout::bshd, Layout::bshd, Layout::bshd, Layout::bshd);
  });
  family.add("B21 k sliced from a buffer of twice the width, v a [B, S, H*D] view", [](Trial& t) {
    Call call = t.call({.hq = 4, .hkv = 4, .sq = 62, .sk = 62, .d = 64}, Layout::exact);
    Tensor wide = laid_out(t.dtype(), {1, 4, 62, 128}, Layout::contiguous);
    for (std::int64_t n = 0; n < call.k.element_count(); ++n) wide.set_bits(n / 64 * 128 + n % 64, call.k.bits(n));
    TensorView half = wide.view();
    half.shape[3] = 64;
    const Outputs plain = t.run(call);
    call.k = Tensor::over(half);
    call.v = relaid(call.v, Layout::bshd);
    const Outputs outputs = t.check(call, 100);
    t.expect_near(outputs.o, [&](std::int64_t n) { return plain.o.get(n); }, 4 * t.eps(), "the contiguous run, o");
  });
  for (std::int64_t offset = 1; offset <= 7; ++offset) {
    family.add("B26 q, k, v start at elements " + std::to_string(offset) + " and on of one buffer", [=](Trial& t) {
      const Shape shape{.b = 2, .hq = 2, .hkv = 2, .sq = 33, .sk = 33, .d = 32};
      const std::int64_t count = shape.b * shape.hq * shape.sq * shape.d;
      Call call = t.call(shape);
      std::vector<std::byte> buffer(static_cast<std::size_t>(3 * count + 32) * size_of(t.dtype()));
      std::int64_t start = offset;
      for (Tensor* tensor : {&call.q, &call.k, &call.v}) {
        TensorView view = contiguous_view(buffer.data() + static_cast<std::size_t>(start) * size_of(t.dtype()),
                                          t.dtype(), {shape.b, shape.hq, shape.sq, shape.d});
        start += count + 1;
        Tensor moved = Tensor::over(view);
        for (std::int64_t n = 0; n < count; ++n) moved.set_bits(n, tensor->bits(n));
        *tensor = moved;
      }
      t.check(call, 60);
    });
  }
  for (const Layout out : {Layout::exact, Layout::bshd, Layout::padded_rows}) {
    family.add_slow(std::string("B28 many keys, few queries, output ") + name_of(out),
                    [out](Trial& t) {
                      Call call = t.call({.hq = 8, .hkv = 8, .sq = 4, .sk = 1024, .d = 128});
                      add_outputs(call, out);
                      t.check(call, 8);
                    },
                    {DType::float32, DType::bfloat16});
  }
  family.add("k and v share their storage", [](Trial& t) {
    Call call = t.call({.hq = 4, .hkv = 2, .sq = 9, .sk = 50, .d = 32});
    call.v = Tensor::over(call.k.view());
    t.check(call);
    Call self = t.call({.hq = 2, .hkv = 2, .sq = 30, .sk = 30, .d = 32});
    self.k = Tensor::over(self.q.view());
    self.v = Tensor::over(self.q.view());
    t.check(self);
  });
  family.add("a batch expanded by stride 0, as in beam search", [](Trial& t) {
    Call call = t.call({.b = 4, .hq = 2, .hkv = 2, .sq = 3, .sk = 40, .d = 16});
    for (Tensor* tensor : {&call.k, &call.v}) {
      *tensor = expanded(t.dtype(), {4, 2, 40, 16}, {true, false, false, false});
      fill_normal(*tensor, t.random());
    }
    t.check(call);
  });
  family.add("one KV head expanded over all heads by stride 0, D=512 (a full-attention layer of Gemma)", [](Trial& t) {
    Call call = t.call({.hq = 4, .hkv = 4, .sq = 9, .sk = 20, .d = 512});
    for (Tensor* tensor : {&call.k, &call.v}) {
      *tensor = expanded(t.dtype(), {1, 4, 20, 512}, {false, true, false, false});
      fill_normal(*tensor, t.random());
    }
    call.mask = t.random_mask({9, 20}, 0.6);
    t.check(call);
  });
  family.add("every key the same by stride 0, every column the same by stride 0", [](Trial& t) {
    Call call = t.call({.hq = 2, .hkv = 2, .sq = 35, .sk = 70, .d = 16});
    call.k = expanded(t.dtype(), {1, 2, 70, 16}, {false, false, true, false});
    fill_normal(call.k, t.random());
    call.v = expanded(t.dtype(), {1, 2, 70, 16}, {false, false, false, true});
    fill_normal(call.v, t.random());
    call.q = expanded(t.dtype(), {1, 2, 35, 16}, {false, false, false, true});
    fill_normal(call.q, t.random());
    t.check(call);
  });
  family.add("strided slopes, sinks and lse", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 3, .hkv = 1, .sq = 7, .sk = 30, .d = 16});
    call.alibi_slopes = relaid(t.normal_f32({2, 3}, 0.2), Layout::columns_apart);
    call.sinks = relaid(t.normal_f32({3}), Layout::reversed_columns);
    for (const Layout layout : {Layout::padded_rows, Layout::columns_apart, Layout::every_other}) {
      call.lse = laid_out(statistics_dtype(t.dtype()), {2, 3, 7}, layout);
      t.check(call);
    }
  });
  family.add("without lse", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 2, .hkv = 2, .sq = 20, .sk = 70, .d = 16});
    call.lse = {};
    t.check(call);
  });
}

}  // namespace tilewise::verify
