#include "verify/trial.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "verify/budget.hpp"

namespace tilewise::verify {
namespace {

constexpr std::byte poison{0xFF};

std::uint64_t poison_bits(DType dtype) { return ~std::uint64_t{0} >> (64 - 8 * size_of(dtype)); }

void poison_outputs(Call& call) {
  for (Tensor* tensor : {&call.o, &call.lse}) {
    std::fill(tensor->storage().begin(), tensor->storage().end(), poison);
    if (tensor->storage().empty()) {
      for (std::int64_t flat = 0; flat < tensor->element_count(); ++flat) {
        tensor->set_bits(flat, poison_bits(tensor->dtype()));
      }
    }
  }
}

// A row-major copy of the tensor; whatever is left in its storage must be poison still.
std::string harvest(Tensor& tensor, const char* name, Tensor& copy) {
  if (!tensor.present()) return {};
  copy = Tensor(tensor.dtype(), tensor.shape());
  const std::uint64_t unwritten = poison_bits(tensor.dtype());
  for (std::int64_t flat = 0; flat < tensor.element_count(); ++flat) {
    const std::uint64_t bits = tensor.bits(flat);
    if (bits == unwritten) {
      return std::string(name) + ": element " + std::to_string(flat) + " of " + std::to_string(tensor.element_count()) +
             " was not written, or poison from unread memory reached it";
    }
    copy.set_bits(flat, bits);
    tensor.set_bits(flat, unwritten);
  }
  const std::vector<std::byte>& storage = tensor.storage();
  const auto touched = std::find_if(storage.begin(), storage.end(), [](std::byte byte) { return byte != poison; });
  if (touched != storage.end()) {
    return std::string(name) + ": byte " + std::to_string(touched - storage.begin()) +
           " of its storage was written, which is no element of it";
  }
  for (std::int64_t flat = 0; flat < tensor.element_count(); ++flat) tensor.set_bits(flat, copy.bits(flat));
  return {};
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::array<std::span<const double>, sum_orders.size()> spans_of(
    const std::array<std::vector<double>, sum_orders.size()>& vectors) {
  std::array<std::span<const double>, sum_orders.size()> spans;
  std::copy(vectors.begin(), vectors.end(), spans.begin());
  return spans;
}

struct Free {
  void operator()(void* data) const { std::free(data); }
};

// Exactly `bytes` of 64-byte aligned poison.
std::unique_ptr<void, Free> poisoned_workspace(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  if (posix_memalign(&data, 64, bytes) != 0) throw std::bad_alloc();
  std::memset(data, 0xFF, bytes);
  return std::unique_ptr<void, Free>(data);
}

// First, last and evenly spread rows between, at most max_rows.
std::vector<RowIndex> sampled_rows(const Tensor& o, std::size_t max_rows) {
  const auto& shape = o.shape();
  const std::int64_t total = shape[0] * shape[1] * shape[2];
  const std::int64_t wanted =
      max_rows == all_rows ? total : std::min(total, static_cast<std::int64_t>(std::max<std::size_t>(max_rows, 2)));
  std::vector<RowIndex> rows;
  for (std::int64_t n = 0; n < wanted; ++n) {
    // Exact in 64 bits up to 2^63 / wanted rows.
    const std::int64_t flat = wanted == total ? n : n * (total - 1) / (wanted - 1);
    rows.push_back({flat / (shape[1] * shape[2]), flat / shape[2] % shape[1], flat % shape[2]});
  }
  return rows;
}

}  // namespace

double Trial::largest() const {
  switch (dtype_) {
    case DType::float64: return std::numeric_limits<double>::max();
    case DType::float16: return 65504;
    case DType::bfloat16: return from_bfloat16_bits(0x7F7F);
    default: return static_cast<double>(std::numeric_limits<float>::max());
  }
}

Call Trial::call(const Shape& shape, std::optional<Layout> layout) {
  const Layout chosen = layout ? *layout : random_.below(2) == 0 ? Layout::exact : Layout::contiguous;
  Call call;
  call.device = subject_.device;
  call.q = laid_out(dtype_, {shape.b, shape.hq, shape.sq, shape.d}, chosen);
  call.k = laid_out(dtype_, {shape.b, shape.hkv, shape.sk, shape.d}, chosen);
  call.v = laid_out(dtype_, {shape.b, shape.hkv, shape.sk, shape.v_dim()}, chosen);
  for (Tensor* tensor : {&call.q, &call.k, &call.v}) fill_normal(*tensor, random_);
  add_outputs(call);
  return call;
}

Tensor Trial::normal(const std::vector<std::int64_t>& shape, double deviation, double mean) {
  Tensor tensor = laid_out(dtype_, shape, Layout::contiguous);
  fill_normal(tensor, random_, deviation, mean);
  return tensor;
}

Tensor Trial::normal_f32(const std::vector<std::int64_t>& shape, double deviation, double mean) {
  Tensor tensor = laid_out(DType::float32, shape, Layout::contiguous);
  fill_normal(tensor, random_, deviation, mean);
  return tensor;
}

Tensor Trial::random_mask(const std::vector<std::int64_t>& shape, double density, Layout layout) {
  Tensor mask = laid_out(DType::boolean, shape, layout);
  constexpr std::array<std::uint64_t, 4> truths{0x01, 0x02, 0x80, 0xFE};
  for (std::int64_t flat = 0; flat < mask.element_count(); ++flat) {
    const bool attends = random_.uniform() < density;
    mask.set_bits(flat, attends ? truths[static_cast<std::size_t>(random_.below(4))] : 0);
  }
  return mask;
}

Outputs Trial::run(Call& call, int threads) {
  const AttentionOptions options = call.options();
  if (const std::string reason = subject_.refusal(call.tensors(), options); !reason.empty()) {
    // A kernel without an lse of its own (the rungs) is still held to its o.
    call.lse = Tensor();
    if (!subject_.refusal(call.tensors(), options).empty()) throw CaseSkipped(reason);
  }
  const ForwardTensors tensors = call.tensors();

  poison_outputs(call);
  ExecutionOptions execution;
  execution.max_threads = threads;
  execution.workspace.bytes = subject_.workspace(tensors, options, execution);
  const auto workspace = poisoned_workspace(execution.workspace.bytes);
  execution.workspace.data = workspace.get();
  subject_.forward(tensors, options, execution);

  Outputs outputs;
  for (const std::string& damage : {harvest(call.o, "o", outputs.o), harvest(call.lse, "lse", outputs.lse)}) {
    if (!damage.empty()) fail(damage);
  }
  return outputs;
}

const Reference& Trial::next_reference(Call& call, std::size_t max_rows) {
  if (next_reference_ == references_.size()) {
    const ForwardTensors tensors = call.tensors();
    const AttentionOptions options = call.options();
    Reference reference;
    reference.rows = sampled_rows(call.o, max_rows);
    for (const RowIndex& row : reference.rows) {
      const RowStudy study = study_row(tensors, options, row);
      append(reference.o, study.exact.o);
      reference.lse.push_back(study.exact.lse);
      for (std::size_t n = 0; n < sum_orders.size(); ++n) {
        append(reference.naive_o[n], study.naive[n].o);
        reference.naive_lse[n].push_back(study.naive[n].lse);
      }
    }
    references_.push_back(std::move(reference));
  }
  return references_[next_reference_++];
}

Outputs Trial::collect(Call& call, std::size_t max_rows) {
  Outputs outputs = run(call);
  const Reference& reference = next_reference(call, max_rows);
  const std::int64_t columns = call.o.shape()[3];
  const bool has_lse = call.lse.present();
  if (collected_.rows.empty()) collected_columns_ = columns;
  if (columns != collected_columns_) fail("the case collects calls of different Dv");

  for (std::size_t n = 0; n < reference.rows.size(); ++n) {
    const auto [b, h, i] = reference.rows[n];
    const std::int64_t row = (b * call.o.shape()[1] + h) * call.o.shape()[2] + i;
    const auto begin = reference.o.begin() + static_cast<std::ptrdiff_t>(n) * columns;
    const bool must_be_zero = std::all_of(begin, begin + columns, [](double value) { return value == 0; });
    for (std::int64_t column = 0; column < columns; ++column) {
      const double value = outputs.o.get(row * columns + column);
      if (must_be_zero && value != 0) {
        fail("o[b=" + std::to_string(b) + ", h=" + std::to_string(h) + ", i=" + std::to_string(i) + ", column=" +
             std::to_string(column) + "] is " + std::to_string(value) + ", but the whole row must be exactly 0");
      }
      collected_o_.push_back(value);
    }
    // Without an lse of its own the call adds its reference's, which cannot fail.
    collected_lse_.push_back(has_lse ? outputs.lse.get(row) : reference.lse[n]);
  }
  append(collected_.rows, reference.rows);
  append(collected_.o, reference.o);
  append(collected_.lse, reference.lse);
  for (std::size_t n = 0; n < sum_orders.size(); ++n) {
    append(collected_.naive_o[n], reference.naive_o[n]);
    append(collected_.naive_lse[n], reference.naive_lse[n]);
  }
  return outputs;
}

void Trial::judge_collected() {
  const Judgement o = judge({.name = "o",
                             .dtype = dtype_,
                             .rows = collected_.rows,
                             .columns = collected_columns_,
                             .reference = collected_.o,
                             .naive = spans_of(collected_.naive_o),
                             .actual = collected_o_});
  const Judgement lse = judge({.name = "lse",
                               .dtype = statistics_dtype(dtype_),
                               .rows = collected_.rows,
                               .columns = 1,
                               .reference = collected_.lse,
                               .naive = spans_of(collected_.naive_lse),
                               .actual = collected_lse_,
                               .is_logarithm = true});
  max_error_ = std::max(max_error_, o.max_error);
  rel_l2_error_ = std::max(rel_l2_error_, o.rel_l2_error);
  budget_share_ = std::max({budget_share_, o.budget_share, lse.budget_share});
  collected_ = {};
  collected_o_.clear();
  collected_lse_.clear();
  if (!o.failure.empty()) fail(o.failure);
  if (!lse.failure.empty()) fail(lse.failure);
}

Outputs Trial::check(Call& call, std::size_t max_rows) {
  Outputs outputs = collect(call, max_rows);
  judge_collected();
  return outputs;
}

void Trial::expect_invalid(Call& call, const std::string& argument) {
  poison_outputs(call);
  const std::vector<std::byte> o = call.o.storage();
  const std::vector<std::byte> lse = call.lse.storage();
  ExecutionOptions execution;
  execution.max_threads = 1;
  try {
    subject_.forward(call.tensors(), call.options(), execution);
  } catch (const std::invalid_argument& error) {
    expect(std::string_view(error.what()).find(argument) != std::string_view::npos,
           "the message '" + std::string(error.what()) + "' does not name " + argument);
    expect(o == call.o.storage() && lse == call.lse.storage(), "a refused call wrote to its outputs");
    return;
  }
  fail("an invalid " + argument + " was accepted");
}

void Trial::expect_same_bits(const Tensor& actual, const Tensor& expected, const std::string& what) {
  expect(actual.shape() == expected.shape(), what + ": shapes differ");
  for (std::int64_t flat = 0; flat < actual.element_count(); ++flat) {
    if (actual.bits(flat) == expected.bits(flat)) continue;
    fail(what + ": element " + std::to_string(flat) + " is " + std::to_string(actual.get(flat)) + " instead of " +
         std::to_string(expected.get(flat)) + " (bits differ)");
  }
}

void Trial::expect_same_bits(const Outputs& actual, const Outputs& expected, const std::string& what) {
  expect_same_bits(actual.o, expected.o, what + ", o");
  expect_same_bits(actual.lse, expected.lse, what + ", lse");
}

void Trial::expect_near(const Tensor& actual, const std::function<double(std::int64_t flat)>& expected,
                        double tolerance, const std::string& what) {
  if (!actual.present()) return;  // the lse of a kernel that has none
  for (std::int64_t flat = 0; flat < actual.element_count(); ++flat) {
    const double value = actual.get(flat);
    const double wanted = expected(flat);
    if (value == wanted || std::fabs(value - wanted) <= tolerance) continue;
    char text[96];
    std::snprintf(text, sizeof text, " is %.9g instead of %.9g, allowed is a difference of %.3g", value, wanted,
                  tolerance);
    fail(what + ": element " + std::to_string(flat) + text);
  }
}

void Trial::expect(bool condition, const std::string& what) const {
  if (!condition) fail(what);
}

void Trial::fail(const std::string& what) const { throw CaseFailed(what); }

}  // namespace tilewise::verify
