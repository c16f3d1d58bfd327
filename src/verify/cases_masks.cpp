// Boolean masks and additive biases: broadcasting, rows without keys, extreme finite values.
#include <cmath>
#include <limits>

#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

// Every way to broadcast to [B, Hq, Sq, Sk] at ranks 1 to 4.
std::vector<std::vector<std::int64_t>> broadcast_shapes(const Shape& shape) {
  const std::int64_t full[] = {shape.b, shape.hq, shape.sq, shape.sk};
  std::vector<std::vector<std::int64_t>> shapes;
  for (unsigned rank = 1; rank <= 4; ++rank) {
    for (unsigned whole = 0; whole < (1U << rank); ++whole) {
      std::vector<std::int64_t> one;
      one.reserve(rank);
      for (unsigned d = 0; d < rank; ++d) one.push_back((whole >> d & 1U) != 0 ? full[4 - rank + d] : 1);
      shapes.push_back(one);
    }
  }
  return shapes;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// The lowest finite value of the bias's dtype.
double lowest_of(DType dtype) {
  if (dtype == DType::float16) return -65504;
  if (dtype == DType::bfloat16) return from_bfloat16_bits(0xFF7F);
  return static_cast<double>(std::numeric_limits<float>::lowest());
}

// bias 0 where `visible`, else `hidden`.
Tensor bias_from(DType dtype, const std::vector<std::int64_t>& shape, double hidden,
                 const std::function<bool(std::int64_t flat)>& visible) {
  Tensor bias = laid_out(dtype, shape, Layout::contiguous);
  fill(bias, [&](std::int64_t flat) { return visible(flat) ? 0.0 : hidden; });
  return bias;
}

}  // namespace

void add_mask_cases(std::vector<Case>& cases) {
  Family family(cases, "masks");
  const Shape shape{.b = 2, .hq = 4, .hkv = 2, .sq = 9, .sk = 37, .d = 16};
  for (const auto& mask_shape : broadcast_shapes(shape)) {
    family.add(
        "mask " + text_of(mask_shape),
        [shape, mask_shape](Trial& t) {
          Call call = t.call(shape);
          call.mask = t.random_mask(mask_shape, 0.5);
          t.check(call);
        },
        wide_floats);
  }
  for (const double density : {0.0, 0.02, 0.3, 0.97, 1.0}) {
    family.add("random mask, density " + std::to_string(density), [density](Trial& t) {
      Call call = t.call({.b = 2, .hq = 2, .hkv = 1, .sq = 35, .sk = 131, .d = 16});
      call.mask = t.random_mask({2, 2, 35, 131}, density);
      t.check(call);
    });
  }
  for (const Layout layout :
       {Layout::exact, Layout::bshd, Layout::padded_rows, Layout::columns_apart, Layout::every_other,
        Layout::reversed_rows, Layout::reversed_columns, Layout::heads_last}) {
    family.add(std::string("B31 mask, ") + name_of(layout) + ", `attend` between its cells", [layout](Trial& t) {
      for (const std::int64_t s : {16, 32, 40}) {
        Call call = t.call({.b = 2, .hq = 3, .hkv = 3, .sq = s, .sk = s, .d = 16});
        call.mask = t.random_mask({2, 3, s, s}, 0.4, layout);
        t.collect(call);
      }
      t.judge_collected();
    });
  }
  family.add("a mask of a broadcast view: real sizes, strides 0", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 3, .hkv = 3, .sq = 6, .sk = 40, .d = 16});
    call.mask = expanded(DType::boolean, {2, 3, 6, 40}, {false, true, true, false});
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t j = 0; j < 40; ++j) call.mask.set(b * 3 * 6 * 40 + j, t.random().uniform() < 0.5 ? 1 : 0);
    }
    t.check(call);
  });
  family.add("B01 rows without a key are 0, LSE -inf", [](Trial& t) {
    Call call = t.call({.sq = 8, .sk = 8, .d = 8});
    call.mask = laid_out(DType::boolean, {8, 8}, Layout::contiguous);
    fill(call.mask, [](std::int64_t flat) { return flat / 8 < 4 && flat % 8 < 4 ? 1 : 0; });
    const Outputs outputs = t.check(call);
    for (std::int64_t flat = 32; flat < 64; ++flat) t.expect(outputs.o.get(flat) == 0, "rows 4 to 7 are exactly 0");
    for (std::int64_t i = 4; i < 8; ++i) t.expect(outputs.lse.get(i) == -infinity, "their LSE is -inf");
  });
  family.add("B01 a float 0/1 array is a bias, no mask", [](Trial& t) {
    Call call = t.call({.sq = 8, .sk = 8, .d = 8});
    call.bias = bias_from(t.dtype(), {8, 8}, 1, [](std::int64_t flat) { return flat % 3 == 0; });
    t.check(call);
  });
  family.add("B05 no key at all and all keys masked: O = 0, LSE = -inf", [](Trial& t) {
    for (const std::int64_t sk : {0, 5, 100}) {
      Call call = t.call({.b = 2, .hq = 1, .hkv = 1, .sq = 3, .sk = sk, .d = 64});
      call.mask = laid_out(DType::boolean, {sk}, Layout::contiguous);
      const Outputs outputs = t.check(call);
      t.expect_near(outputs.lse, [](std::int64_t) { return -infinity; }, 0, "lse");
    }
  });
  for (const char* form : {"bool", "-inf", "-1e15"}) {
    family.add(std::string("B10 rows and keys beyond 4 of 8 masked by ") + form, [form = std::string(form)](Trial& t) {
      Call call = t.call({.hq = 2, .hkv = 2, .sq = 8, .sk = 8, .d = 8});
      Call cut = call;
      for (Tensor* tensor : {&cut.q, &cut.k, &cut.v}) *tensor = sliced(*tensor, 2, 0, 4);
      add_outputs(cut);
      const Outputs truncated = t.check(cut);
      const auto visible = [](std::int64_t flat) { return flat / 8 < 4 && flat % 8 < 4; };
      if (form == "bool") {
        call.mask = laid_out(DType::boolean, {8, 8}, Layout::contiguous);
        fill(call.mask, [&](std::int64_t flat) { return visible(flat) ? 1 : 0; });
      } else {
        call.bias = bias_from(DType::float32, {8, 8}, form == "-inf" ? -infinity : -1e15, visible);
      }
      // A whole row of -1e15 is visible, with scores that float32 cannot tell apart: only its O is judged, elsewhere.
      const Outputs masked = form == "-1e15" ? t.run(call) : t.check(call);
      const Tensor part = relaid(sliced(masked.o, 2, 0, 4), Layout::exact);
      t.expect_near(part, [&](std::int64_t n) { return truncated.o.get(n); }, 4 * t.eps(), "the truncated run");
    });
  }
  family.add("mask and bias and causal intersect", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 2, .hkv = 1, .sq = 40, .sk = 90, .d = 16});
    call.mask = t.random_mask({2, 1, 40, 90}, 0.6);
    call.bias = t.normal_f32({2, 40, 90});
    fill(call.bias, [&](std::int64_t) { return t.random().uniform() < 0.3 ? -infinity : t.random().normal(); });
    call.settings.band = {.causal = true, .left = 50, .alignment = Alignment::bottom_right};
    t.check(call);
  });
  family.add("whole key blocks masked, one key left at either end", [](Trial& t) {
    Call call = t.call({.sq = 4, .sk = 400, .d = 16});
    call.mask = laid_out(DType::boolean, {4, 400}, Layout::contiguous);
    fill(call.mask, [](std::int64_t flat) {
      const std::int64_t j = flat % 400;
      switch (flat / 400) {
        case 0: return j == 399;
        case 1: return j == 0;
        case 2: return j == 200;
        default: return j == 3 || j == 397;
      }
    });
    const Outputs outputs = t.check(call);
    const std::int64_t only[] = {399, 0, 200};
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t d = 0; d < 16; ++d) {
        t.expect(outputs.o.get(i * 16 + d) == call.v.get(only[i] * 16 + d), "one visible key gives its value, bitwise");
      }
    }
  });
  family.add(
      "B78 a mask of more keys than K has is refused",
      [](Trial& t) {
        Call call = t.call({.hq = 4, .hkv = 4, .sq = 10, .sk = 17, .d = 8});
        call.mask = t.random_mask({10, 20}, 0.5);
        t.expect_invalid(call, "mask");
      },
      only_float32);
  family.add(
      "B78 lengths and offsets beyond K are refused",
      [](Trial& t) {
        for (const std::int64_t rows : {1, 2, 10, 17}) {
          Call call = t.call({.hq = 4, .hkv = 4, .sq = 10, .sk = rows, .d = 8});
          call.kv_lengths = vector_of(DType::int32, {20});
          t.expect_invalid(call, "kv_lengths");
          call.kv_lengths = {};
          call.cu_q = vector_of(DType::int32, {0, 10});
          call.cu_k = vector_of(DType::int32, {0, 20});
          t.expect_invalid(call, "cu_k");
        }
      },
      only_float32);
  family.add(
      "B45 K and V of different length are refused",
      [](Trial& t) {
        Call call = t.call({.sq = 3, .sk = 5, .d = 8});
        call.v = t.normal({1, 1, 6, 8});
        t.expect_invalid(call, "v");
        TensorView huge = call.v.view();
        huge.shape[2] = 4000000;
        call.v = Tensor::over(huge);
        t.expect_invalid(call, "v");
      },
      only_float32);
}

void add_bias_cases(std::vector<Case>& cases) {
  Family family(cases, "bias");
  const Shape shape{.b = 2, .hq = 4, .hkv = 2, .sq = 9, .sk = 37, .d = 16};
  for (const auto& bias_shape : broadcast_shapes(shape)) {
    family.add("bias " + text_of(bias_shape),
               [shape, bias_shape](Trial& t) {
                 Call call = t.call(shape);
                 call.bias = t.normal_f32(bias_shape, 2);
                 t.check(call);
               },
               {DType::float32, DType::float16});
  }
  family.add("bias in the dtype of q", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 2, .hkv = 1, .sq = 30, .sk = 90, .d = 16});
    call.bias = t.normal({2, 2, 30, 90}, 2);
    t.check(call);
  });
  for (const Layout layout : {Layout::bshd, Layout::padded_rows, Layout::columns_apart, Layout::every_other,
                              Layout::reversed_rows, Layout::reversed_columns}) {
    family.add(std::string("bias, ") + name_of(layout), [layout](Trial& t) {
      Call call = t.call({.b = 2, .hq = 2, .hkv = 2, .sq = 13, .sk = 66, .d = 8});
      call.bias = relaid(t.normal_f32({2, 2, 13, 66}), layout);
      t.check(call);
    });
  }
  family.add("a dense relative bias without scaling, as T5", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 4, .hkv = 4, .sq = 48, .sk = 48, .d = 64});
    call.bias = t.normal_f32({1, 4, 48, 48}, 3);
    call.settings.scale = 1;
    fill_normal(call.q, t.random(), 0.125);
    t.check(call);
  });
  for (const auto& [s, d] : {std::pair<std::int64_t, std::int64_t>{600, 2}, {640, 4}}) {
    family.add_slow(
        "B03 an additive band of -inf, S=" + std::to_string(s),
        [s = s, d = d](Trial& t) {
          Call call = t.call({.sq = s, .sk = s, .d = d});
          const Call random = call;
          for (Tensor* tensor : {&call.q, &call.k, &call.v}) fill_constant(*tensor, 1);
          call.bias = bias_from(DType::float32, {s, s}, -infinity,
                                [s](std::int64_t flat) { return flat / s - 10 < flat % s && flat % s <= flat / s; });
          const Outputs ones = t.check(call, 100);
          t.expect_near(ones.o, [](std::int64_t) { return 1.0; }, 2 * t.eps(), "V = 1, o");
          call.q = random.q;
          call.k = random.k;
          call.v = random.v;
          t.check(call, 100);
        },
        wide_floats);
  }
  family.add_slow(
      "B06 the lowest finite bias over the whole first key tiles",
      [](Trial& t) {
        Call call = t.call({.b = 1, .hq = 2, .hkv = 2, .sq = 441, .sk = 441, .d = 64});
        call.bias =
            bias_from(DType::float32, {441}, lowest_of(DType::float32), [](std::int64_t j) { return j >= 128; });
        const Outputs biased = t.check(call, 60);
        Call cut = call;
        cut.bias = {};
        cut.k = sliced(call.k, 2, 128, 441);
        cut.v = sliced(call.v, 2, 128, 441);
        const Outputs expected = t.run(cut);
        t.expect_near(
            biased.o, [&](std::int64_t n) { return expected.o.get(n); }, 4 * t.eps(), "keys 128 to 440 alone");
      },
      only_float32);
  family.add("a row of lowest finite biases is no empty row: the mean", [](Trial& t) {
    Call call = t.call({.sq = 3, .sk = 70, .d = 8});
    fill_constant(call.q, 0);
    call.bias = bias_from(DType::float32, {70}, lowest_of(DType::float32), [](std::int64_t) { return false; });
    const Outputs outputs = t.run(call);
    for (std::int64_t d = 0; d < 8; ++d) {
      double mean = 0;
      for (std::int64_t j = 0; j < 70; ++j) mean += call.v.get(j * 8 + d) / 70;
      for (std::int64_t i = 0; i < 3; ++i) {
        t.expect(std::fabs(outputs.o.get(i * 8 + d) - mean) <= 2 * t.eps(), "equal scores give the mean of V");
      }
    }
    t.expect(std::isfinite(outputs.lse.get(0)), "a finite bias never masks: the LSE is finite");
  });
  family.add("B08 two lowest-finite planes summed to -inf",
             [](Trial& t) {
               const double low = lowest_of(t.dtype());
               Call call = t.call({.sq = 4, .sk = 4, .d = 16});
               call.bias = laid_out(t.dtype(), {4, 4}, Layout::contiguous);
               // Causal and padding, pad on keys 2 and 3; row 3 is -inf throughout.
               fill(call.bias, [&](std::int64_t flat) {
                 const double causal = flat % 4 > flat / 4 ? low : 0;
                 const double pad = flat % 4 >= 2 ? low : 0;
                 return flat / 4 == 3 ? -infinity : rounded_to(t.dtype(), causal + pad);
               });
               const Outputs outputs = t.check(call);
               t.expect(outputs.o.get(0) == call.v.get(0), "row 0 sees key 0 alone");
               t.expect(outputs.o.get(48) == 0 && outputs.lse.get(3) == -infinity, "row 3 is empty");
             },
             {DType::float32, DType::float16, DType::bfloat16});
  family.add_slow(
      "B51 a bias of -1e4 on all but the last 512 of 40000 keys",
      [](Trial& t) {
        Call call = t.call({.hq = 4, .hkv = 2, .sq = 2, .sk = 40000, .d = 16});
        call.bias = bias_from(DType::float32, {1, 1, 1, 40000}, -1e4, [](std::int64_t j) { return j >= 40000 - 512; });
        const Outputs biased = t.check(call, 4);
        Call cut = call;
        cut.bias = {};
        cut.k = sliced(call.k, 2, 40000 - 512, 40000);
        cut.v = sliced(call.v, 2, 40000 - 512, 40000);
        const Outputs expected = t.run(cut);
        t.expect_near(
            biased.o, [&](std::int64_t n) { return expected.o.get(n); }, 4 * t.eps(), "the last 512 keys alone");
      },
      {DType::float32, DType::bfloat16});
  family.add("B56 a valid score far below any sentinel", [](Trial& t) {
    Call call = t.call({.sq = 2, .sk = 2, .d = 1});
    call.settings.scale = 1;
    call.q.set(0, -20000);
    call.q.set(1, 0);
    call.k.set(0, 1);
    call.k.set(1, 0);
    call.v.set(0, 1);
    call.v.set(1, 100);
    call.mask = laid_out(DType::boolean, {2}, Layout::contiguous);
    call.mask.set(0, 1);
    const Outputs outputs = t.check(call);
    t.expect(outputs.o.get(0) == 1 && outputs.o.get(1) == 1, "O = [1, 1]");
  });
  family.add("swin windows: a bias by head, many items", [](Trial& t) {
    Call call = t.call({.b = 12, .hq = 4, .hkv = 4, .sq = 49, .sk = 49, .d = 32}, Layout::fused);
    call.bias = t.normal({4, 49, 49});
    t.check(call, 400);
  });
}

}  // namespace tilewise::verify
