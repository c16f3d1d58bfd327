#include <cstdio>
#include <vector>

#include "fuzz/problem.hpp"

namespace tilewise::fuzz {
namespace {

std::string list_of(const std::vector<std::int64_t>& values) {
  std::string text = "[";
  for (const std::int64_t value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "]";
}

std::string line_of(const char* name, const verify::Tensor& tensor) {
  if (!tensor.present()) return {};
  std::string text = std::string(name) + ": " + name_of(tensor.dtype()) + " " + list_of(tensor.shape()) + ", strides " +
                     list_of(tensor.strides()) + ", offset " + std::to_string(tensor.storage_offset());
  if (tensor.shape().size() == 1) {
    text += ", values";
    for (std::int64_t flat = 0; flat < tensor.element_count(); ++flat) text += " " + std::to_string(tensor.get(flat));
  }
  return text + "\n";
}

template <class Number>
std::string number(const char* name, const std::optional<Number>& value) {
  if (!value) return {};
  char text[64];
  std::snprintf(text, sizeof text, ", %s %.9g", name, static_cast<double>(*value));
  return text;
}

std::string integer(const char* name, const std::optional<std::int64_t>& value) {
  return value ? std::string(", ") + name + " " + std::to_string(*value) : std::string();
}

}  // namespace

std::string description(FuzzedProblem& problem) {
  const verify::Call& call = problem.call;
  const AttentionOptions& settings = call.settings;
  const Band& band = settings.band;
  std::string text = "kernel " + (problem.kernel.empty() ? "chosen by the library" : problem.kernel) + ", threads " +
                     std::to_string(problem.threads) + (problem.callers_pool ? ", the caller's pool" : "") +
                     (problem.values_are_keys ? ", v is k" : "") + number("scale", settings.scale) +
                     number("softcap", settings.softcap) + (band.causal ? ", causal" : "") +
                     integer("left", band.left) + integer("right", band.right) + integer("delta", band.delta);
  if (band.alignment) text += *band.alignment == Alignment::top_left ? ", top_left" : ", bottom_right";
  if (settings.dropout) {
    text += number("dropout", std::optional(settings.dropout->p)) + ", seed " + std::to_string(settings.dropout->seed) +
            ", offset " + std::to_string(settings.dropout->offset);
  }
  text += "\n";
  text += line_of("q", call.q) + line_of("k", call.k) + line_of("v", call.v) + line_of("o", call.o);
  text += line_of("lse", call.lse) + line_of("mask", call.mask) + line_of("bias", call.bias);
  text += line_of("alibi_slopes", call.alibi_slopes) + line_of("sinks", call.sinks);
  text += line_of("q_lengths", call.q_lengths) + line_of("kv_lengths", call.kv_lengths);
  text += line_of("cu_q", call.cu_q) + line_of("cu_k", call.cu_k) + line_of("block_table", call.block_table);
  return text;
}

}  // namespace tilewise::fuzz
