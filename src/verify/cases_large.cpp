// Sizes at the ends of the scale: none, many, and far apart.
#include <sys/mman.h>

#include <cmath>

#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

// Address space without memory behind it: only the pages that are touched cost anything.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) {
      throw CaseSkipped("this machine does not reserve " + std::to_string(bytes >> 30) + " GiB of address space");
    }
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  ~SparseMemory() { munmap(data_, bytes_); }
  [[nodiscard]] void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// The values of `tensor` at other strides, in sparse memory.
class Spread {
 public:
  Spread(const Tensor& tensor, const std::vector<std::int64_t>& strides)
      : memory_(bytes_of(tensor, strides)), tensor_(placed(tensor, strides)) {
    for (std::int64_t n = 0; n < tensor.element_count(); ++n) tensor_.set_bits(n, tensor.bits(n));
  }
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

 private:
  static std::size_t bytes_of(const Tensor& tensor, const std::vector<std::int64_t>& strides) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) last += (tensor.shape()[d] - 1) * strides[d];
    return static_cast<std::size_t>(last + 1) * size_of(tensor.dtype());
  }
  Tensor placed(const Tensor& tensor, const std::vector<std::int64_t>& strides) {
    TensorView view;
    view.data = memory_.data();
    view.dtype = tensor.dtype();
    view.rank = static_cast<int>(strides.size());
    for (std::size_t d = 0; d < strides.size(); ++d) {
      view.shape[d] = tensor.shape()[d];
      view.strides[d] = strides[d];
    }
    return Tensor::over(view);
  }

  SparseMemory memory_;
  Tensor tensor_;
};

constexpr std::int64_t two_to(int exponent) { return std::int64_t{1} << exponent; }

// Slices of a batch with equal work: some of them against the oracle, all of them by a property.
void many_slices(Trial& t, const Shape& shape) {
  Call call = t.call(shape);
  call.lse = laid_out(statistics_dtype(t.dtype()), {shape.b, shape.hq, shape.sq}, Layout::contiguous);
  t.check(call, 97);
  fill(call.v, [d = shape.d, s = shape.sk](std::int64_t flat) { return static_cast<double>(flat / (s * d) % 1024); });
  const Outputs outputs = t.run(call);
  for (const std::int64_t slice :
       {std::int64_t{0}, std::int64_t{32767}, std::int64_t{65534}, std::int64_t{65535}, shape.b * shape.hq - 1}) {
    if (slice >= shape.b * shape.hq) continue;
    const double expected = static_cast<double>(slice % 1024);
    const double actual = outputs.o.get(slice * shape.sq * shape.d);
    t.expect(
        std::fabs(actual - expected) <= 4 * t.eps() * expected,
        "slice " + std::to_string(slice) + " is " + std::to_string(actual) + " instead of " + std::to_string(expected));
  }
}

}  // namespace

void add_size_cases(std::vector<Case>& cases) {
  Family family(cases, "sizes");
  constexpr std::int64_t empty[][5] = {{0, 2, 4, 4, 8}, {2, 0, 4, 4, 8}, {2, 2, 0, 4, 8}, {2, 2, 4, 0, 8},
                                       {0, 0, 0, 0, 0}, {2, 2, 4, 0, 0}, {2, 2, 4, 4, 0}};
  for (const auto& [b, h, sq, sk, d] : empty) {
    for (const bool causal : {false, true}) {
      const Shape shape{.b = b, .hq = h, .hkv = h, .sq = sq, .sk = sk, .d = d};
      family.add("B46 B=" + std::to_string(b) + " H=" + std::to_string(h) + " Sq=" + std::to_string(sq) +
                     " Sk=" + std::to_string(sk) + " D=" + std::to_string(d) + (causal ? " causal" : ""),
                 [shape, causal](Trial& t) {
                   Call call = t.call(shape, Layout::contiguous);
                   if (causal) call.settings.band = {.causal = true, .alignment = Alignment::bottom_right};
                   const Outputs outputs = t.check(call);
                   if (shape.sk == 0) t.expect_near(outputs.lse, [](std::int64_t) { return -infinity; }, 0, "lse");
                   call.sinks = t.normal_f32({shape.hq});
                   t.check(call);
                 });
    }
  }
  // Found by fuzzing: kernels step over rows that have no elements, and the offsets overflowed.
  for (const std::int64_t sq : {1, 40}) {
    family.add("strides of 2^62 where there are no elements, Sq=" + std::to_string(sq), [sq](Trial& t) {
      Call call = t.call({.b = 3, .hq = 4, .hkv = 4, .sq = sq, .sk = 513, .d = 0}, Layout::contiguous);
      for (Tensor* tensor : {&call.q, &call.k, &call.v, &call.o}) {
        *tensor = Tensor(t.dtype(), tensor->shape(), {two_to(62), two_to(62), two_to(62), two_to(62)}, 0, 0);
      }
      t.check(call);
    });
  }
  family.add("Sk=0 with Hkv=0 and Hq=0", [](Trial& t) {
    Call call = t.call({.b = 2, .hq = 0, .hkv = 3, .sq = 4, .sk = 5, .d = 8}, Layout::contiguous);
    t.check(call);
  });
  family.add_slow("B48 65536 items",
                  [](Trial& t) { many_slices(t, {.b = 65536, .hq = 1, .hkv = 1, .sq = 1, .sk = 2, .d = 8}); },
                  {DType::float32, DType::float16});
  family.add_slow("B48 65536 heads",
                  [](Trial& t) { many_slices(t, {.b = 1, .hq = 65536, .hkv = 65536, .sq = 1, .sk = 2, .d = 8}); },
                  {DType::float32, DType::float16});
  family.add_slow("B48 70000 slices of several queries",
                  [](Trial& t) { many_slices(t, {.b = 8750, .hq = 8, .hkv = 8, .sq = 2, .sk = 2, .d = 8}); },
                  {DType::float16});
  family.add(
      "B103 small sizes crossed, D=128, called twice",
      [](Trial& t) {
        for (const std::int64_t sq : {2, 8, 64}) {
          for (const std::int64_t sk : {2, 64, 130}) {
            Call call = t.call({.b = 2, .hq = 2, .hkv = 2, .sq = sq, .sk = sk, .d = 128});
            const Outputs first = t.collect(call, 40);
            t.expect_same_bits(t.run(call), first, "a second call");
          }
        }
        t.judge_collected();
      },
      only_float32);
}

void add_large_offset_cases(std::vector<Case>& cases) {
  Family family(cases, "large offset");
  family.add("B50 mask rows 2^27 elements apart",
             [](Trial& t) {
               Call call = t.call({.hq = 2, .hkv = 2, .sq = 40, .sk = 50, .d = 8});
               call.mask = t.random_mask({40, 50}, 0.5);
               const Outputs compact = t.check(call);
               const Spread mask(call.mask, {two_to(27), 1});
               call.mask = mask.tensor();
               t.expect_same_bits(t.run(call), compact, "the compact mask");
             },
             {DType::float32, DType::float16});
  family.add("B55 mask heads 2^30 elements apart",
             [](Trial& t) {
               Call call = t.call({.hq = 5, .hkv = 5, .sq = 24, .sk = 24, .d = 16});
               call.mask = t.random_mask({5, 24, 24}, 0.5);
               const Outputs compact = t.check(call);
               const Spread mask(call.mask, {two_to(30), 24, 1});
               call.mask = mask.tensor();
               t.expect_same_bits(t.run(call), compact, "the compact mask");
             },
             {DType::float32, DType::float16});
  family.add(
      "B55 bias heads 2^30 elements apart",
      [](Trial& t) {
        Call call = t.call({.hq = 5, .hkv = 5, .sq = 10, .sk = 24, .d = 16});
        call.bias = t.normal_f32({5, 10, 24});
        const Outputs compact = t.check(call);
        const Spread bias(call.bias, {two_to(30), 24, 1});
        call.bias = bias.tensor();
        t.expect_same_bits(t.run(call), compact, "the compact bias");
      },
      only_float32);
  family.add(
      "B51 mask columns 2^26 elements apart",
      [](Trial& t) {
        Call call = t.call({.sq = 3, .sk = 70, .d = 8});
        call.mask = t.random_mask({1, 1, 1, 70}, 0.5);
        const Outputs compact = t.check(call);
        const Spread mask(call.mask, {0, 0, 0, two_to(26)});
        call.mask = mask.tensor();
        t.expect_near(
            t.run(call).o, [&](std::int64_t n) { return compact.o.get(n); }, 4 * t.eps(), "the compact mask, o");
      },
      only_float32);
  for (const char* which : {"q", "k", "v", "o"}) {
    family.add("rows of " + std::string(which) + " 2^27 elements apart",
               [which = std::string(which)](Trial& t) {
                 Call call = t.call({.hq = 1, .hkv = 1, .sq = 36, .sk = 36, .d = 8});
                 const Outputs compact = t.check(call);
                 Tensor& tensor = which == "q" ? call.q : which == "k" ? call.k : which == "v" ? call.v : call.o;
                 const Spread spread(tensor, {0, 0, two_to(27), 1});
                 tensor = spread.tensor();
                 t.expect_near(
                     t.run(call).o, [&](std::int64_t n) { return compact.o.get(n); }, 4 * t.eps(),
                     "the compact run, o");
               },
               {DType::float32, DType::bfloat16});
    family.add("heads of " + std::string(which) + " 2^30 elements apart, columns far apart",
               [which = std::string(which)](Trial& t) {
                 Call call = t.call({.hq = 5, .hkv = 5, .sq = 6, .sk = 9, .d = 4});
                 const Outputs compact = t.check(call);
                 Tensor& tensor = which == "q" ? call.q : which == "k" ? call.k : which == "v" ? call.v : call.o;
                 const Spread spread(tensor, {0, two_to(30), 1, two_to(20)});
                 tensor = spread.tensor();
                 t.expect_near(
                     t.run(call).o, [&](std::int64_t n) { return compact.o.get(n); }, 4 * t.eps(),
                     "the compact run, o");
               },
               {DType::float32, DType::bfloat16});
  }
  family.add("items of k and v 2^31 elements apart",
             [](Trial& t) {
               Call call = t.call({.b = 3, .hq = 2, .hkv = 2, .sq = 6, .sk = 9, .d = 8});
               const Outputs compact = t.check(call);
               const Spread k(call.k, {two_to(31), 72, 8, 1});
               const Spread v(call.v, {two_to(31) + 8, 72, 8, 1});
               call.k = k.tensor();
               call.v = v.tensor();
               t.expect_near(
                   t.run(call).o, [&](std::int64_t n) { return compact.o.get(n); }, 4 * t.eps(), "the compact run, o");
             },
             {DType::float32, DType::bfloat16});
  family.add(
      "pages 2^30 elements apart",
      [](Trial& t) {
        Call call = t.call({.b = 1, .hq = 2, .hkv = 1, .sq = 3, .sk = 8, .d = 8});
        for (Tensor* tensor : {&call.k, &call.v}) *tensor = t.normal({6, 1, 8, 8});
        call.block_table = Tensor(DType::int32, {1, 5});
        for (std::int64_t n = 0; n < 5; ++n) call.block_table.set(n, static_cast<double>(5 - n));
        call.kv_lengths = vector_of(DType::int32, {37});
        const Outputs compact = t.check(call);
        const Spread k(call.k, {two_to(30), 64, 8, 1});
        const Spread v(call.v, {two_to(30), 64, 8, 1});
        call.k = k.tensor();
        call.v = v.tensor();
        t.expect_near(
            t.run(call).o, [&](std::int64_t n) { return compact.o.get(n); }, 4 * t.eps(), "the compact pool, o");
      },
      only_float32);
}

}  // namespace tilewise::verify
