#include "fuzz/problem.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tilewise::fuzz {
namespace {

using verify::Call;
using verify::Random;
using verify::Tensor;
using Sizes = std::vector<std::int64_t>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

// One call is kept below this many multiplications, so that many calls are made.
constexpr std::int64_t most_work = std::int64_t{1} << 20;

struct Dimensions {
  std::int64_t batch = 1;  // items, or packed sequences
  std::int64_t q_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q_rows = 1;   // of a slot, or of all packed sequences
  std::int64_t kv_rows = 1;  // of a slot, of all packed sequences, or of a page table's row
  std::int64_t head_dim = 1;
  std::int64_t v_dim = 1;
  bool packed = false;
  bool paged = false;
  std::int64_t page_size = 1;
  std::int64_t pages = 1;  // in the pool
};

enum class Role : std::uint8_t { input, output };

void poison(Tensor& tensor) { std::fill(tensor.storage().begin(), tensor.storage().end(), std::byte{0xFF}); }

bool is_empty(const Tensor& tensor) { return tensor.element_count() == 0; }

bool repeats(const Tensor& tensor) {
  for (std::size_t d = 0; d < tensor.shape().size(); ++d) {
    if (tensor.shape()[d] > 1 && tensor.strides()[d] == 0) return true;
  }
  return false;
}

// A tensor whose dimensions lie in memory in any order, with gaps, reversed or (inputs) repeated. The storage ends with
// the last element and, half the time, begins with the first. Everything between the elements is poison (NaN).
Tensor placed(Choices& choices, DType dtype, const Sizes& shape, Role role) {
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t before = 0;
  const bool plain = !choices.one_in(2);
  if (!plain) {
    for (std::size_t n = order.size(); n > 1; --n) {
      std::swap(order[n - 1], order[static_cast<std::size_t>(choices.below(static_cast<std::int64_t>(n)))]);
    }
    before = choices.below(4);
  }

  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  Sizes strides(shape.size());
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::int64_t next = 1;  // stride of a dimension that lies around all those placed so far
  for (std::size_t n = order.size(); n-- > 0;) {
    const std::size_t d = order[n];
    const std::int64_t kind = plain ? 0 : choices.below(8);
    std::int64_t stride = next + (kind == 4 ? choices.below(4) : 0);
    if (kind == 5) stride = -stride;
    if (kind == 6 && role == Role::input) stride = 0;
    // Nobody ever multiplies the stride of a dimension of size 1 by anything but 0.
    if (kind == 7 && (shape[d] == 1 || empty))
      stride = std::max(choices.integer(), std::numeric_limits<std::int64_t>::min() + 1);
    strides[d] = stride;
    if (empty || shape[d] == 1) continue;
    (stride < 0 ? low : high) += (shape[d] - 1) * stride;
    if (stride != 0) next = std::abs(stride) * shape[d];
  }
  Tensor tensor(dtype, shape, strides, before + (empty ? 0 : high - low + 1), before - low);
  poison(tensor);
  return tensor;
}

Random random_of(Choices& choices) { return Random(choices.word(2)); }

// Normal values of some spread and mean, or one value everywhere.
void fill(Choices& choices, Tensor& tensor) {
  struct Style {
    double deviation;
    double mean;
  };
  constexpr std::array<Style, 8> styles{{{1, 0}, {1, 0}, {6, 0}, {1e-3, 0}, {1, 20}, {0, 1}, {30, 0}, {1e-30, 0}}};
  const Style style = choices.pick(styles);
  Random random = random_of(choices);
  verify::fill_normal(tensor, random, style.deviation, style.mean);
}

double special_value(Choices& choices, DType dtype) {
  const double largest = dtype == DType::float64    ? DBL_MAX
                         : dtype == DType::float16  ? 65504
                         : dtype == DType::bfloat16 ? verify::from_bfloat16_bits(0x7F7F)
                                                    : static_cast<double>(FLT_MAX);
  const std::array<double, 8> values{nan_value, infinity, -infinity, largest, -largest, -0.0, DBL_MIN, 5e-324};
  const double value = choices.pick(values);
  return dtype == DType::float64 || std::abs(value) > 1 || value == 0 ? value : static_cast<double>(FLT_MIN) / 8;
}

void strew_specials(Choices& choices, Call& call) {
  for (std::int64_t n = choices.below(4); n > 0; --n) {
    Tensor* const tensors[] = {&call.q, &call.k, &call.v};
    Tensor& tensor = *tensors[choices.below(3)];
    const double value = special_value(choices, tensor.dtype());
    const auto place = static_cast<std::int64_t>(choices.word(3));
    const bool whole_row = choices.one_in(2);
    if (is_empty(tensor)) continue;
    const std::int64_t width = tensor.shape()[3];
    const std::int64_t flat = place % tensor.element_count();
    if (!whole_row) {
      tensor.set(flat, value);
      continue;
    }
    for (std::int64_t d = 0; d < width; ++d) tensor.set(flat / width * width + d, value);
  }
}

std::int64_t any_size(Choices& choices) {
  constexpr std::array<std::int64_t, 32> sizes{1,  2,  3,  4,  5,  6,  7,  8,  9,  12, 13,  15,  16,  17,  23,  24,
                                               25, 31, 32, 33, 48, 63, 64, 65, 96, 97, 128, 129, 193, 257, 300, 0};
  return choices.pick(sizes);
}

// So many keys that kernels for few queries share them out and merge partial results (from 512 keys on).
void few_queries_over_many_keys(Choices& choices, Dimensions& d) {
  constexpr std::array<std::int64_t, 8> keys{513, 700, 1024, 1025, 1537, 2048, 2049, 3000};
  d.kv_rows = choices.pick(keys);
  d.q_rows = std::min<std::int64_t>(d.q_rows, 1 + choices.below(5));
  d.head_dim = std::min<std::int64_t>(d.head_dim, 1 + choices.below(24));
  d.v_dim = std::min<std::int64_t>(d.v_dim, 1 + choices.below(24));
}

Dimensions dimensions(Choices& choices) {
  Dimensions d;
  d.kv_heads = choices.pick(std::array<std::int64_t, 8>{1, 1, 1, 2, 2, 3, 4, 1});
  d.q_heads = d.kv_heads * choices.pick(std::array<std::int64_t, 8>{1, 1, 2, 3, 4, 5, 8, 1});
  d.batch = choices.pick(std::array<std::int64_t, 8>{1, 1, 1, 2, 2, 3, 4, 1});
  switch (choices.below(64)) {
    case 61: d.batch = 0; break;
    case 62: d.q_heads = 0; break;
    case 63: d.kv_heads = d.q_heads = 0; break;
    default: break;
  }
  d.q_rows = any_size(choices);
  d.kv_rows = any_size(choices);
  d.head_dim = any_size(choices);
  d.v_dim = choices.one_in(3) ? any_size(choices) : d.head_dim;
  if (choices.one_in(6)) few_queries_over_many_keys(choices, d);
  const std::int64_t layout = choices.below(8);
  d.packed = layout == 5 || layout == 7;
  d.paged = layout == 6 || layout == 7;

  const std::int64_t rows = std::max<std::int64_t>(1, d.q_heads) * (d.packed ? 1 : std::max<std::int64_t>(1, d.batch));
  while (rows * d.q_rows * d.kv_rows * (d.head_dim + d.v_dim + 8) > most_work) {
    (d.q_rows > d.kv_rows ? d.q_rows : d.kv_rows) /= 2;
  }
  if (d.paged) {
    d.page_size = choices.pick(std::array<std::int64_t, 8>{1, 2, 3, 8, 16, 17, 32, 64});
    d.kv_rows = (d.kv_rows + d.page_size - 1) / d.page_size * d.page_size;
    d.pages = choices.below(12);
  }
  return d;
}

Tensor integers(Choices& choices, const std::vector<std::int64_t>& values) {
  Tensor tensor = placed(choices, choices.one_in(2) ? DType::int64 : DType::int32,
                         {static_cast<std::int64_t>(values.size())}, Role::output);
  for (std::size_t n = 0; n < values.size(); ++n) {
    tensor.set_bits(static_cast<std::int64_t>(n), static_cast<std::uint64_t>(values[n]));
  }
  return tensor;
}

// From 0 to `whole`, both included.
std::int64_t part_of(Choices& choices, std::int64_t whole) { return choices.below(256) * whole / 255; }

// Offsets of `sequences` packed sequences in at most `rows` rows.
std::vector<std::int64_t> offsets(Choices& choices, std::int64_t sequences, std::int64_t rows) {
  std::vector<std::int64_t> result{0};
  for (std::int64_t n = 0; n < sequences; ++n) {
    const std::int64_t left = rows - result.back();
    const bool rest = n + 1 == sequences && !choices.one_in(4);
    result.push_back(result.back() + (rest ? left : part_of(choices, left)));
  }
  return result;
}

// One length a sequence, from 0 to `limit(b)`.
template <class Limit>
std::vector<std::int64_t> lengths(Choices& choices, std::int64_t sequences, const Limit& limit) {
  std::vector<std::int64_t> result;
  for (std::int64_t b = 0; b < sequences; ++b) {
    const std::int64_t most = limit(b);
    const std::int64_t cut = choices.one_in(3) ? 0 : part_of(choices, most);
    result.push_back(most - cut);
  }
  return result;
}

void add_lengths(Choices& choices, const Dimensions& d, Call& call) {
  std::vector<std::int64_t> cu_q;
  std::vector<std::int64_t> cu_k;
  if (d.packed) {
    cu_q = offsets(choices, d.batch, d.q_rows);
    call.cu_q = integers(choices, cu_q);
    if (!d.paged) {
      cu_k = offsets(choices, d.batch, d.kv_rows);
      call.cu_k = integers(choices, cu_k);
    }
  }
  const auto slot = [](const std::vector<std::int64_t>& cu, std::int64_t rows) {
    return [&cu, rows](std::int64_t b) {
      const auto n = static_cast<std::size_t>(b);
      return cu.empty() ? rows : cu[n + 1] - cu[n];
    };
  };
  if (choices.one_in(4)) call.q_lengths = integers(choices, lengths(choices, d.batch, slot(cu_q, d.q_rows)));
  const std::int64_t longest = d.paged && d.pages == 0 ? 0 : d.kv_rows;
  if (d.paged || choices.one_in(4)) {
    call.kv_lengths = integers(choices, lengths(choices, d.batch, slot(cu_k, longest)));
  }
}

// Entries of the table beyond a sequence's length are garbage.
void add_pages(Choices& choices, const Dimensions& d, Call& call) {
  if (!d.paged) return;
  const std::int64_t columns = d.kv_rows / d.page_size;
  call.block_table = placed(choices, DType::int32, {d.batch, columns}, Role::output);
  Random random = random_of(choices);
  for (std::int64_t b = 0; b < d.batch; ++b) {
    const std::int64_t length = static_cast<std::int64_t>(call.kv_lengths.get(b));
    for (std::int64_t n = 0; n < columns; ++n) {
      const bool used = n * d.page_size < length;
      call.block_table.set_bits(b * columns + n,
                                used ? static_cast<std::uint64_t>(random.below(d.pages)) : random.bits());
    }
  }
}

// Rows that nobody may read hold NaN: keys beyond a length, and pages that no table names.
void poison_unread_keys(const Dimensions& d, Call& call) {
  if (d.packed || d.paged || !call.kv_lengths.present()) return;
  for (Tensor* tensor : {&call.k, &call.v}) {
    if (repeats(*tensor)) continue;
    const std::int64_t width = tensor->shape()[3];
    for (std::int64_t row = 0; row < d.batch * d.kv_heads * d.kv_rows; ++row) {
      const auto length = static_cast<std::int64_t>(call.kv_lengths.get(row / (d.kv_heads * d.kv_rows)));
      if (row % d.kv_rows < length) continue;
      for (std::int64_t c = 0; c < width; ++c) tensor->set_bits(row * width + c, ~std::uint64_t{0});
    }
  }
}

void add_band(Choices& choices, const Dimensions& d, Call& call) {
  Band& band = call.settings.band;
  switch (choices.below(8)) {
    case 3:
    case 4: band.causal = true; break;
    case 5: band.left = choices.integer(); break;
    case 6: band.right = choices.integer(); break;
    case 7:
      band.left = choices.integer();
      (choices.one_in(2) ? band.causal = true : band.right.emplace(choices.integer()));
      break;
    default: break;
  }
  const bool square =
      d.q_rows == d.kv_rows && !call.q_lengths.present() && !call.kv_lengths.present() && !d.packed && !d.paged;
  const std::int64_t corner = choices.below(4);
  if (corner == 3) {
    band.delta = choices.integer();
  } else if (corner > 0 || (!band.unbounded() && !square)) {
    band.alignment = corner == 1 ? Alignment::top_left : Alignment::bottom_right;
  }
}

// A tensor that broadcasts to [B, Hq, Sq, Sk].
Tensor pairs(Choices& choices, const Dimensions& d, DType dtype) {
  const Sizes full{d.batch, d.q_heads, d.q_rows, d.kv_rows};
  const std::int64_t rank = 4 - choices.below(4);
  Sizes shape(full.end() - rank, full.end());
  for (std::int64_t& size : shape) {
    if (choices.one_in(3)) size = 1;
  }
  return placed(choices, dtype, shape, Role::input);
}

void add_mask(Choices& choices, const Dimensions& d, Call& call) {
  if (d.packed || !choices.one_in(4)) return;
  call.mask = pairs(choices, d, DType::boolean);
  const double density = choices.pick(std::array<double, 6>{0.5, 1, 0.05, 0.95, 0.3, 0});
  Random random = random_of(choices);
  for (std::int64_t flat = 0; flat < call.mask.element_count(); ++flat) {
    call.mask.set_bits(flat, random.uniform() < density ? 1 + static_cast<std::uint64_t>(random.below(255)) : 0);
  }
}

void add_bias(Choices& choices, const Dimensions& d, Call& call) {
  if (d.packed || !choices.one_in(4)) return;
  call.bias = pairs(choices, d, choices.one_in(2) ? call.q.dtype() : DType::float32);
  fill(choices, call.bias);
  const auto lowest = -static_cast<double>(call.bias.dtype() == DType::float16 ? 65504.0F : FLT_MAX);
  // The last two are rare, and one element only.
  const double other = choices.pick(std::array<double, 4>{-infinity, lowest, -infinity, -1e4});
  const double density = choices.pick(std::array<double, 4>{0, 0.3, 0.9, 1});
  Random random = random_of(choices);
  for (std::int64_t flat = 0; flat < call.bias.element_count(); ++flat) {
    if (random.uniform() < density) call.bias.set(flat, other);
  }
  if (choices.one_in(8) && !is_empty(call.bias)) {
    call.bias.set(random.below(call.bias.element_count()), choices.one_in(2) ? nan_value : infinity);
  }
}

void add_vectors(Choices& choices, const Dimensions& d, Call& call) {
  if (choices.one_in(4)) {
    const Sizes shape = choices.one_in(2) ? Sizes{d.batch, d.q_heads} : Sizes{d.q_heads};
    call.alibi_slopes = placed(choices, DType::float32, shape, Role::input);
    Random random = random_of(choices);
    const double spread = choices.pick(std::array<double, 4>{0.1, 0, 1, 1e-6});
    verify::fill_normal(call.alibi_slopes, random, spread, spread);
    if (choices.one_in(16) && !is_empty(call.alibi_slopes)) call.alibi_slopes.set(0, nan_value);
  }
  if (choices.one_in(4)) {
    call.sinks = placed(choices, DType::float32, {d.q_heads}, Role::input);
    Random random = random_of(choices);
    verify::fill_normal(call.sinks, random, 4);
    constexpr std::array<double, 6> others{-infinity, 80, -80, -static_cast<double>(FLT_MAX), 1e4, nan_value};
    if (choices.one_in(2) && !is_empty(call.sinks)) call.sinks.set(0, choices.pick(others));
  }
}

void add_numbers(Choices& choices, Call& call) {
  constexpr double largest = static_cast<double>(FLT_MAX);
  AttentionOptions& settings = call.settings;
  if (choices.one_in(4)) {
    settings.scale = choices.pick(std::array<double, 8>{0.3, 0, -0.2, 1, -1, 1e-30, 1e30, -largest});
  }
  if (choices.one_in(4)) {
    settings.softcap = choices.pick(std::array<double, 8>{2, 30, 0.1, 50, 1e-30, 1e30, largest, FLT_MIN});
  }
  if (choices.one_in(8)) {
    settings.dropout = Dropout{choices.pick(std::array<double, 8>{0.5, 0, 0.1, 0.9, 1, 0.999, 1e-12, 0.2}),
                               choices.word(8), static_cast<std::uint32_t>(choices.word(4))};
  }
}

void add_tensors(Choices& choices, const Dimensions& d, Call& call) {
  constexpr std::array<DType, 8> dtypes{DType::float32, DType::float32,  DType::float32,  DType::float64,
                                        DType::float16, DType::bfloat16, DType::bfloat16, DType::float16};
  const DType dtype = choices.pick(dtypes);
  const std::int64_t items = d.packed ? 1 : d.batch;
  const std::int64_t kv_items = d.paged ? d.pages : items;
  const std::int64_t kv_rows = d.paged ? d.page_size : d.kv_rows;
  call.q = placed(choices, dtype, {items, d.q_heads, d.q_rows, d.head_dim}, Role::input);
  call.k = placed(choices, dtype, {kv_items, d.kv_heads, kv_rows, d.head_dim}, Role::input);
  call.v = placed(choices, dtype, {kv_items, d.kv_heads, kv_rows, d.v_dim}, Role::input);
  for (Tensor* tensor : {&call.q, &call.k, &call.v}) fill(choices, *tensor);
  call.o = placed(choices, dtype, {items, d.q_heads, d.q_rows, d.v_dim}, Role::output);
  if (choices.one_in(4)) return;
  call.lse = placed(choices, verify::statistics_dtype(dtype), {items, d.q_heads, d.q_rows}, Role::output);
}

// CPU kernels most of the time: the ladder's take few problems.
std::string any_kernel(Choices& choices) {
  const std::int64_t which = choices.byte();
  std::vector<std::string> names{""};
  for (const std::string& name : kernel_names()) {
    if (which % 16 == 15 || name.starts_with("cpu.")) names.push_back(name);
  }
  return names[static_cast<std::size_t>(which) / 16 % names.size()];
}

}  // namespace

ForwardTensors FuzzedProblem::tensors() {
  ForwardTensors views = call.tensors();
  if (values_are_keys) views.v = views.k;
  return views;
}

FuzzedProblem decode(Choices& choices) {
  FuzzedProblem problem;
  Call& call = problem.call;
  problem.kernel = any_kernel(choices);
  problem.threads = static_cast<int>(choices.between(1, 3));
  problem.callers_pool = choices.one_in(3);
  const Dimensions d = dimensions(choices);
  problem.kv_rows = d.kv_rows;
  add_tensors(choices, d, call);
  add_lengths(choices, d, call);
  add_pages(choices, d, call);
  add_band(choices, d, call);
  add_numbers(choices, call);
  add_mask(choices, d, call);
  add_bias(choices, d, call);
  add_vectors(choices, d, call);
  if (choices.one_in(3)) strew_specials(choices, call);
  poison_unread_keys(d, call);
  problem.values_are_keys = d.v_dim == d.head_dim && choices.one_in(8);
  return problem;
}

}  // namespace tilewise::fuzz
