// The shapes of the ONNX Attention node tests and of real models, scaled down.
#include <cmath>

#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

const std::vector<DType> onnx_dtypes{DType::float32, DType::float16};

// Q, K, V drawn in this order from one generator, as those tests do; masks follow. `gain` sharpens the softmax, which
// positive uniform inputs leave nearly flat.
struct OnnxInputs {
  Call call;
  NumpyUniform uniform;
  double gain;
};

OnnxInputs onnx_inputs(Trial& t, const Shape& shape, double gain, std::uint32_t seed = 0) {
  OnnxInputs inputs{t.call(shape), NumpyUniform(seed), gain};
  for (Tensor* tensor : {&inputs.call.q, &inputs.call.k, &inputs.call.v}) {
    fill(*tensor, [&](std::int64_t) { return gain * static_cast<double>(static_cast<float>(inputs.uniform())); });
  }
  return inputs;
}

// Cells attend where the generator is below 1/2: casting its numbers to bool would make every cell attend.
Tensor onnx_mask(OnnxInputs& inputs, const std::vector<std::int64_t>& shape) {
  Tensor mask = laid_out(DType::boolean, shape, Layout::contiguous);
  fill(mask, [&](std::int64_t) { return inputs.uniform() < 0.5 ? 1 : 0; });
  return mask;
}

Tensor onnx_bias(OnnxInputs& inputs, const std::vector<std::int64_t>& shape) {
  Tensor bias = laid_out(DType::float32, shape, Layout::contiguous);
  fill(bias, [&](std::int64_t) { return inputs.gain * inputs.uniform(); });
  return bias;
}

const Shape mha{.b = 2, .hq = 3, .hkv = 3, .sq = 4, .sk = 6, .d = 8};

struct OnnxCase {
  const char* name;
  Shape shape;
  std::function<void(Trial&, OnnxInputs&)> apply;
};

const OnnxCase onnx_cases[] = {
    {"4d", mha, [](Trial&, OnnxInputs&) {}},
    {"gqa", {.b = 2, .hq = 9, .hkv = 3, .sq = 4, .sk = 6, .d = 8}, [](Trial&, OnnxInputs&) {}},
    {"diff_head_sizes", {.b = 2, .hq = 3, .hkv = 3, .sq = 4, .sk = 6, .d = 8, .dv = 10}, [](Trial&, OnnxInputs&) {}},
    {"scaled", mha, [](Trial&, OnnxInputs& in) { in.call.settings.scale = 0.01; }},
    {"softcap", mha, [](Trial&, OnnxInputs& in) { in.call.settings.softcap = 2; }},
    {"causal", mha,
     [](Trial&, OnnxInputs& in) { in.call.settings.band = {.causal = true, .alignment = Alignment::top_left}; }},
    {"attn_mask 2-D", mha, [](Trial&, OnnxInputs& in) { in.call.bias = onnx_bias(in, {4, 6}); }},
    {"attn_mask 3-D", mha, [](Trial&, OnnxInputs& in) { in.call.bias = onnx_bias(in, {1, 4, 6}); }},
    {"attn_mask 4-D", mha, [](Trial&, OnnxInputs& in) { in.call.bias = onnx_bias(in, {2, 3, 4, 6}); }},
    {"attn_mask bool", mha, [](Trial&, OnnxInputs& in) { in.call.mask = onnx_mask(in, {4, 6}); }},
    {"attn_mask bool 4-D", mha, [](Trial&, OnnxInputs& in) { in.call.mask = onnx_mask(in, {2, 3, 4, 6}); }},
    {"attn_mask bool by item", mha, [](Trial&, OnnxInputs& in) { in.call.mask = onnx_mask(in, {2, 1, 4, 6}); }},
    {"past of 12 keys",
     {.b = 2, .hq = 3, .hkv = 3, .sq = 4, .sk = 18, .d = 8},
     [](Trial&, OnnxInputs& in) {
       in.call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
       in.call.bias = onnx_bias(in, {4, 18});
     }},
    {"softcap with -inf in the mask", mha,
     [](Trial&, OnnxInputs& in) {
       in.call.settings.softcap = 2;
       in.call.bias = laid_out(DType::float32, {4, 6}, Layout::contiguous);
       fill(in.call.bias, [&](std::int64_t) { return in.uniform() < 0.5 ? -infinity : 0.0; });
     }},
    {"softcap with -inf in the mask, poison behind it", mha,
     [](Trial&, OnnxInputs& in) {
       in.call.settings.softcap = 2;
       in.call.bias = laid_out(DType::float32, {4, 6}, Layout::contiguous);
       fill(in.call.bias, [](std::int64_t flat) { return flat % 6 >= 4 ? -infinity : 0.0; });
       for (std::int64_t n = 0; n < in.call.k.element_count(); ++n) {
         if (n / 8 % 6 < 4) continue;
         in.call.k.set(n, std::nan(""));
         in.call.v.set(n, std::nan(""));
       }
     }},
    {"causal with a bool mask, fully masked rows", mha,
     [](Trial&, OnnxInputs& in) {
       in.call.settings.band = {.causal = true, .alignment = Alignment::top_left};
       in.call.mask = laid_out(DType::boolean, {4, 6}, Layout::contiguous);
       fill(in.call.mask, [](std::int64_t flat) { return flat % 6 >= 2 ? 1 : 0; });
     }},
    {"causal_nonpad: a valid length per item moves the diagonal", mha,
     [](Trial&, OnnxInputs& in) {
       in.call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
       in.call.kv_lengths = vector_of(DType::int64, {3, 6});
     }},
    {"local_window", mha,
     [](Trial&, OnnxInputs& in) {
       in.call.settings.band = {.causal = true, .left = 2, .alignment = Alignment::bottom_right};
     }},
    {"bidirectional_window", mha,
     [](Trial&, OnnxInputs& in) { in.call.settings.band = {.left = 1, .right = 1, .alignment = Alignment::top_left}; }},
    {"diff_heads_mask4d_padded_kv",
     {.b = 2, .hq = 3, .hkv = 3, .sq = 4, .sk = 6, .d = 8, .dv = 10},
     [](Trial&, OnnxInputs& in) {
       in.call.bias = onnx_bias(in, {2, 3, 4, 6});
       in.call.kv_lengths = vector_of(DType::int64, {3, 4});
     }},
    {"3-D form, transposed", mha, [](Trial&, OnnxInputs& in) {
       for (Tensor* tensor : {&in.call.q, &in.call.k, &in.call.v}) *tensor = relaid(*tensor, Layout::bshd);
       add_outputs(in.call, Layout::bshd);
     }}};

// A model's attention: its heads, head dimension, mask and extras; lengths are ours and short.
struct Model {
  const char* name;
  Shape shape;
  Band band{};
  double softcap = 0;
  double scale = 0;  // 0: 1 / sqrt(D)
  bool sinks = false;
  Layout layout = Layout::bshd;
};

const Band causal{.causal = true, .alignment = Alignment::bottom_right};
Band causal_window(std::int64_t keys) {
  return {.causal = true, .left = keys - 1, .alignment = Alignment::bottom_right};
}

const Model models[] = {
    {"Llama-3.1 8B prefill", {.b = 1, .hq = 8, .hkv = 2, .sq = 96, .sk = 96, .d = 128}, causal},
    {"Llama-3.1 8B decode", {.b = 2, .hq = 32, .hkv = 8, .sq = 1, .sk = 191, .d = 128}, causal},
    {"Llama-3 70B, chunk", {.b = 1, .hq = 16, .hkv = 2, .sq = 16, .sk = 128, .d = 128}, causal},
    {"Llama-3.2 1B", {.b = 1, .hq = 8, .hkv = 2, .sq = 128, .sk = 128, .d = 64}, causal},
    {"Qwen2.5 0.5B", {.b = 1, .hq = 14, .hkv = 2, .sq = 64, .sk = 64, .d = 64}, causal},
    {"Qwen2.5 7B", {.b = 1, .hq = 7, .hkv = 1, .sq = 64, .sk = 64, .d = 128}, causal},
    {"Qwen3 0.6B", {.b = 2, .hq = 4, .hkv = 2, .sq = 64, .sk = 64, .d = 128}, causal},
    {"SmolLM2 135M", {.b = 2, .hq = 9, .hkv = 3, .sq = 64, .sk = 64, .d = 64}, causal},
    {"Gemma-2 2B, window", {.b = 1, .hq = 4, .hkv = 2, .sq = 64, .sk = 64, .d = 256}, causal_window(32), 50, 1.0 / 16},
    {"Gemma-2 27B", {.b = 1, .hq = 4, .hkv = 2, .sq = 64, .sk = 64, .d = 128}, causal, 50, 1.0 / 12},
    {"Gemma-3 1B, window", {.b = 1, .hq = 4, .hkv = 1, .sq = 80, .sk = 80, .d = 256}, causal_window(16), 0, 1.0 / 16},
    {"Gemma-3 27B",
     {.b = 1, .hq = 4, .hkv = 2, .sq = 64, .sk = 64, .d = 128},
     causal_window(40),
     0,
     0.0771516749810460},
    {"Mistral 7B, window", {.b = 1, .hq = 8, .hkv = 2, .sq = 100, .sk = 100, .d = 128}, causal_window(48)},
    {"Phi-2", {.b = 1, .hq = 4, .hkv = 4, .sq = 96, .sk = 96, .d = 80}, causal},
    {"Phi-3 mini, window", {.b = 1, .hq = 4, .hkv = 4, .sq = 100, .sk = 100, .d = 96}, causal_window(64)},
    {"Falcon 7B", {.b = 1, .hq = 71, .hkv = 1, .sq = 24, .sk = 24, .d = 64}, causal},
    {"gpt-oss 20B, window and sinks",
     {.b = 1, .hq = 16, .hkv = 2, .sq = 80, .sk = 80, .d = 64},
     causal_window(24),
     0,
     0,
     true},
    {"DeepSeek-V3 prefill", {.b = 1, .hq = 4, .hkv = 4, .sq = 64, .sk = 64, .d = 192, .dv = 128}, causal},
    {"DeepSeek-V3 absorbed decode",
     {.b = 2, .hq = 16, .hkv = 1, .sq = 1, .sk = 64, .d = 576, .dv = 512},
     {},
     0,
     0.0721687836487032},
    {"GPT-2 small, fused QKV",
     {.b = 1, .hq = 12, .hkv = 12, .sq = 64, .sk = 64, .d = 64},
     causal,
     0,
     0,
     false,
     Layout::fused},
    {"MiniLM", {.b = 2, .hq = 12, .hkv = 12, .sq = 32, .sk = 32, .d = 32}},
    {"T5 encoder", {.b = 1, .hq = 8, .hkv = 8, .sq = 64, .sk = 64, .d = 64}, {}, 0, 0.125},
    {"ViT-B/16", {.b = 1, .hq = 4, .hkv = 4, .sq = 197, .sk = 197, .d = 64}},
    {"SAM window", {.b = 2, .hq = 4, .hkv = 4, .sq = 49, .sk = 49, .d = 80}},
    {"SigLIP", {.b = 1, .hq = 4, .hkv = 4, .sq = 81, .sk = 81, .d = 72}},
    {"CLIP text", {.b = 2, .hq = 4, .hkv = 4, .sq = 77, .sk = 77, .d = 64}, causal},
    {"TabPFN columns", {.b = 21, .hq = 3, .hkv = 3, .sq = 3, .sk = 3, .d = 64}},
    {"Whisper cross", {.b = 1, .hq = 6, .hkv = 6, .sq = 1, .sk = 375, .d = 64}},
    {"Stable Diffusion self", {.b = 1, .hq = 2, .hkv = 2, .sq = 256, .sk = 256, .d = 40}},
    {"Stable Diffusion cross", {.b = 1, .hq = 4, .hkv = 4, .sq = 64, .sk = 77, .d = 160}},
    {"SDXL cross", {.b = 2, .hq = 5, .hkv = 5, .sq = 64, .sk = 77, .d = 64}},
    {"SD VAE mid block", {.b = 1, .hq = 1, .hkv = 1, .sq = 64, .sk = 64, .d = 512}},
    {"AnimateDiff temporal", {.b = 20, .hq = 8, .hkv = 8, .sq = 16, .sk = 16, .d = 40}},
    {"FLUX", {.b = 1, .hq = 2, .hkv = 2, .sq = 72, .sk = 72, .d = 128}},
    {"speculative verify", {.b = 2, .hq = 12, .hkv = 2, .sq = 5, .sk = 150, .d = 128}, causal}};

}  // namespace

void add_onnx_cases(std::vector<Case>& cases) {
  Family family(cases, "onnx");
  for (const OnnxCase& one : onnx_cases) {
    for (const double gain : {1.0, 8.0}) {
      family.add(
          std::string(one.name) + (gain > 1 ? ", inputs x8" : ""),
          [&one, gain](Trial& t) {
            OnnxInputs inputs = onnx_inputs(t, one.shape, gain);
            one.apply(t, inputs);
            t.check(inputs.call);
          },
          onnx_dtypes);
    }
  }
}

void add_model_cases(std::vector<Case>& cases) {
  Family family(cases, "models");
  for (const Model& model : models) {
    const Shape& s = model.shape;
    const bool slow = s.b * s.hq * s.sq * s.sk * (s.d + s.v_dim()) > (std::int64_t{1} << 23);
    family.add(
        model.name,
        [&model](Trial& t) {
          Call call = t.call(model.shape, model.layout);
          add_outputs(call, Layout::bshd);
          call.settings.band = model.band;
          if (model.softcap > 0) call.settings.softcap = model.softcap;
          if (model.scale > 0) call.settings.scale = model.scale;
          if (model.sinks) call.sinks = t.normal_f32({model.shape.hq});
          t.check(call, 72);
        },
        {DType::float32, DType::float16, DType::bfloat16}, slow);
  }
}

}  // namespace tilewise::verify
