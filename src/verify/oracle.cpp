#include "verify/oracle.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "verify/tensor.hpp"

namespace tilewise::verify {
namespace {

__extension__ typedef __int128 Wide;  // band arithmetic in it cannot overflow, so nothing here needs to saturate

std::int64_t integer_at(const ConstTensorView& vector, std::int64_t index) {
  const std::int64_t offset = index * vector.strides[0];
  return vector.dtype == DType::int32 ? static_cast<const std::int32_t*>(vector.data)[offset]
                                      : static_cast<const std::int64_t*>(vector.data)[offset];
}

// Where one query row stands: its sequence, its position in it, and the sequence's lengths.
struct Place {
  bool padding = false;
  std::int64_t sequence = 0;  // batch item or packed sequence
  std::int64_t i = 0;         // position of the query in the sequence
  std::int64_t len_q = 0;
  std::int64_t len_k = 0;
};

Place place_of(const ForwardTensors& t, const AttentionOptions& options, RowIndex row) {
  Place place;
  place.sequence = row.b;
  place.i = row.i;
  std::int64_t slot = t.q.shape[2];
  if (options.cu_q.present()) {
    const std::int64_t sequences = options.cu_q.shape[0] - 1;
    std::int64_t s = 0;
    while (s < sequences && !(integer_at(options.cu_q, s) <= row.i && row.i < integer_at(options.cu_q, s + 1))) ++s;
    if (s == sequences) {
      place.padding = true;
      return place;
    }
    place.sequence = s;
    place.i = row.i - integer_at(options.cu_q, s);
    slot = integer_at(options.cu_q, s + 1) - integer_at(options.cu_q, s);
  }
  place.len_q = options.q_lengths.present() ? integer_at(options.q_lengths, place.sequence) : slot;
  if (options.kv_lengths.present()) {
    place.len_k = integer_at(options.kv_lengths, place.sequence);
  } else if (options.cu_k.present()) {
    place.len_k = integer_at(options.cu_k, place.sequence + 1) - integer_at(options.cu_k, place.sequence);
  } else {
    place.len_k = t.k.shape[2];
  }
  place.padding = place.i >= place.len_q;
  return place;
}

// Offset of the first element of key (or value) j of the row's sequence in k (or v).
std::int64_t key_offset(const ConstTensorView& kv, const AttentionOptions& options, const Place& place,
                        std::int64_t head, std::int64_t j) {
  std::int64_t item = place.sequence;
  std::int64_t row = j;
  if (options.block_table.present()) {
    const ConstTensorView& table = options.block_table;
    const std::int64_t page_size = kv.shape[2];
    item = static_cast<const std::int32_t*>(
        table.data)[place.sequence * table.strides[0] + j / page_size * table.strides[1]];
    row = j % page_size;
  } else if (options.cu_k.present()) {
    item = 0;
    row = integer_at(options.cu_k, place.sequence) + j;
  }
  return item * kv.strides[0] + head * kv.strides[1] + row * kv.strides[2];
}

// Offset of element (b, h, i, j) of a tensor that is right-aligned to [B, Hq, Sq, Sk]; dimensions of size 1 broadcast.
std::int64_t broadcast_offset(const ConstTensorView& tensor, const std::array<std::int64_t, 4>& index) {
  std::int64_t offset = 0;
  for (int dimension = 0; dimension < tensor.rank; ++dimension) {
    const auto d = static_cast<std::size_t>(dimension);
    if (tensor.shape[d] != 1) offset += index[static_cast<std::size_t>(4 - tensor.rank) + d] * tensor.strides[d];
  }
  return offset;
}

bool in_band(const Band& band, const Place& place, std::int64_t j) {
  Wide delta = 0;
  if (band.delta) {
    delta = *band.delta;
  } else if (band.alignment == Alignment::bottom_right) {
    delta = static_cast<Wide>(place.len_k) - place.len_q;
  }
  const Wide diagonal = static_cast<Wide>(place.i) + delta;
  if (band.left && j < diagonal - *band.left) return false;
  if (band.causal && j > diagonal) return false;
  return !(band.right && j > diagonal + *band.right);
}

// Philox4x32-10, written from Salmon et al. 2011 and independent of core/philox.h.
std::uint32_t philox_word(std::uint64_t seed, std::array<std::uint32_t, 4> counter, int word) {
  std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed & 0xFFFFFFFFu),
                                   static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 1;; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57u} * counter[2];
    const auto high = [](std::uint64_t product) { return static_cast<std::uint32_t>(product >> 32); };
    const auto low = [](std::uint64_t product) { return static_cast<std::uint32_t>(product & 0xFFFFFFFFu); };
    counter = {high(odd) ^ counter[1] ^ key[0], low(odd), high(even) ^ counter[3] ^ key[1], low(even)};
    if (round == 10) return counter[static_cast<std::size_t>(word)];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

bool is_kept(const Dropout& dropout, std::int64_t row_of_heads, std::int64_t i, std::int64_t j) {
  const double threshold = std::ceil(dropout.p * 4294967296.0);
  const std::uint32_t word = philox_word(dropout.seed,
                                         {dropout.offset, static_cast<std::uint32_t>(row_of_heads),
                                          static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j / 4)},
                                         static_cast<int>(j % 4));
  return static_cast<double>(word) >= threshold;
}

// Everything that one row's result depends on, converted exactly to double. Keys that the query does not see are never
// looked at, so nothing in them can leak.
struct VisibleRow {
  Place place;
  std::int64_t row_of_heads = 0;  // dropout's counter word b * Hq + h
  std::optional<double> sink;
  double slope = 0;  // of ALiBi
  std::vector<double> q;
  std::vector<std::int64_t> keys;  // positions of the keys that it sees
  std::vector<double> k, v;        // [keys, D], [keys, Dv]
  std::vector<double> bias;        // [keys]
  std::vector<double> distance;    // [keys], i + delta - j for ALiBi
};

// One row of a tensor that begins at offset(). Where rows have no elements strides may be anything, and the offset is
// not computed.
template <class Offset>
void read_row(const ConstTensorView& tensor, const Offset& offset, std::vector<double>& to) {
  if (tensor.shape[3] == 0) return;
  const std::int64_t begin = offset();
  for (std::int64_t d = 0; d < tensor.shape[3]; ++d) {
    to.push_back(load_as_double(tensor.data, tensor.dtype, begin + d * tensor.strides[3]));
  }
}

VisibleRow visible_row(const ForwardTensors& t, const AttentionOptions& options, RowIndex row) {
  VisibleRow visible;
  visible.place = place_of(t, options, row);
  const Place& place = visible.place;
  if (place.padding) return visible;
  const std::int64_t q_heads = t.q.shape[1];
  const std::int64_t kv_head = row.h / (q_heads / t.k.shape[1]);
  visible.row_of_heads = place.sequence * q_heads + row.h;
  const auto q_offset = [&] { return row.b * t.q.strides[0] + row.h * t.q.strides[1] + row.i * t.q.strides[2]; };
  read_row(t.q, q_offset, visible.q);
  if (options.sinks.present()) {
    visible.sink = load_as_double(options.sinks.data, options.sinks.dtype, row.h * options.sinks.strides[0]);
  }
  if (options.alibi_slopes.present()) {
    const ConstTensorView& slopes = options.alibi_slopes;
    const std::int64_t offset =
        slopes.rank == 1 ? row.h * slopes.strides[0] : place.sequence * slopes.strides[0] + row.h * slopes.strides[1];
    visible.slope = load_as_double(slopes.data, slopes.dtype, offset);
  }
  const Wide delta = options.band.delta ? Wide{*options.band.delta} : Wide{place.len_k} - place.len_q;

  for (std::int64_t j = 0; j < place.len_k; ++j) {
    const std::array<std::int64_t, 4> index{place.sequence, row.h, place.i, j};
    if (!in_band(options.band, place, j)) continue;
    if (options.mask.present() &&
        load_as_double(options.mask.data, DType::boolean, broadcast_offset(options.mask, index)) == 0) {
      continue;
    }
    double bias = 0;
    if (options.bias.present()) {
      bias = load_as_double(options.bias.data, options.bias.dtype, broadcast_offset(options.bias, index));
      if (bias == -std::numeric_limits<double>::infinity()) continue;
    }
    visible.keys.push_back(j);
    visible.bias.push_back(bias);
    visible.distance.push_back(static_cast<double>(Wide{place.i} + delta - j));
    read_row(t.k, [&] { return key_offset(t.k, options, place, kv_head, j); }, visible.k);
    read_row(t.v, [&] { return key_offset(t.v, options, place, kv_head, j); }, visible.v);
  }
  return visible;
}

// Calls add(n) for n in [0, count) in the given order.
template <class Add>
void in_order(SumOrder order, std::size_t count, const Add& add) {
  switch (order) {
    case SumOrder::forward:
      for (std::size_t n = 0; n < count; ++n) add(n);
      return;
    case SumOrder::backward:
      for (std::size_t n = count; n-- > 0;) add(n);
      return;
    case SumOrder::even_then_odd:
      for (std::size_t n = 0; n < count; n += 2) add(n);
      for (std::size_t n = 1; n < count; n += 2) add(n);
      return;
  }
}

template <class Real>
std::vector<Real> scores_of(const VisibleRow& row, const AttentionOptions& options, SumOrder order) {
  const std::size_t head_dim = row.q.size();
  const Real scale = options.scale   ? static_cast<Real>(*options.scale)
                     : head_dim == 0 ? Real(1)
                                     : Real(1) / std::sqrt(static_cast<Real>(head_dim));
  std::vector<Real> scores(row.keys.size());
  for (std::size_t n = 0; n < scores.size(); ++n) {
    const double* k = row.k.data() + n * head_dim;
    Real dot = 0;
    in_order(order, head_dim, [&](std::size_t d) { dot += static_cast<Real>(row.q[d]) * static_cast<Real>(k[d]); });
    Real score = scale * dot;
    if (options.softcap) {
      const Real cap = static_cast<Real>(*options.softcap);
      score = cap * std::tanh(score / cap);
    }
    if (options.bias.present()) score += static_cast<Real>(row.bias[n]);
    if (options.alibi_slopes.present()) {
      score -= static_cast<Real>(row.slope) * static_cast<Real>(std::fabs(row.distance[n]));
    }
    scores[n] = score;
  }
  return scores;
}

// The definition, with every intermediate in Real: all scores of the row, their softmax, the weighted sum of values.
template <class Real>
OracleRow row_by_definition(const VisibleRow& row, std::size_t v_dim, const AttentionOptions& options, SumOrder order) {
  constexpr Real minus_infinity = -std::numeric_limits<Real>::infinity();
  OracleRow result{std::vector<double>(v_dim, 0.0), -std::numeric_limits<double>::infinity()};
  if (row.place.padding) return result;
  const std::vector<Real> scores = scores_of<Real>(row, options, order);

  const Real sink = row.sink ? static_cast<Real>(*row.sink) : minus_infinity;
  Real maximum = sink;
  bool has_nan = std::isnan(sink);
  for (const Real score : scores) {
    has_nan = has_nan || std::isnan(score) || score == -minus_infinity;
    if (score > maximum) maximum = score;
  }
  if (has_nan) {
    result.lse = std::numeric_limits<double>::quiet_NaN();
    result.o.assign(v_dim, std::numeric_limits<double>::quiet_NaN());
    return result;
  }
  if (maximum == minus_infinity) return result;  // no key that weighs anything, no sink

  Real sum = sink == minus_infinity ? Real(0) : std::exp(sink - maximum);
  std::vector<Real> weights(scores.size());
  in_order(order, scores.size(), [&](std::size_t n) {
    weights[n] = scores[n] == minus_infinity ? Real(0) : std::exp(scores[n] - maximum);
    sum += weights[n];
  });
  result.lse = static_cast<double>(maximum + std::log(sum));

  std::vector<Real> o(v_dim, Real(0));
  in_order(order, scores.size(), [&](std::size_t n) {
    Real weight = weights[n] / sum;
    if (options.dropout) {
      if (!is_kept(*options.dropout, row.row_of_heads, row.place.i, row.keys[n])) return;
      weight /= static_cast<Real>(1.0 - options.dropout->p);
    }
    const double* v = row.v.data() + n * v_dim;
    for (std::size_t d = 0; d < v_dim; ++d) o[d] += weight * static_cast<Real>(v[d]);
  });
  for (std::size_t d = 0; d < v_dim; ++d) result.o[d] = static_cast<double>(o[d]);
  return result;
}

OracleRow exact_of(const VisibleRow& row, const ForwardTensors& t, const AttentionOptions& options) {
  const auto v_dim = static_cast<std::size_t>(t.v.shape[3]);
  // float64 inputs need a reference better than float64 itself.
  if (t.q.dtype == DType::float64) return row_by_definition<long double>(row, v_dim, options, SumOrder::forward);
  return row_by_definition<double>(row, v_dim, options, SumOrder::forward);
}

OracleRow naive_of(const VisibleRow& row, const ForwardTensors& t, const AttentionOptions& options, SumOrder order) {
  const auto v_dim = static_cast<std::size_t>(t.v.shape[3]);
  OracleRow result = t.q.dtype == DType::float64 ? row_by_definition<double>(row, v_dim, options, order)
                                                 : row_by_definition<float>(row, v_dim, options, order);
  for (double& value : result.o) value = rounded_to(t.q.dtype, value);
  return result;
}

}  // namespace

OracleRow oracle_row(const ForwardTensors& tensors, const AttentionOptions& options, RowIndex row) {
  return exact_of(visible_row(tensors, options, row), tensors, options);
}

OracleRow naive_row(const ForwardTensors& tensors, const AttentionOptions& options, RowIndex row, SumOrder order) {
  return naive_of(visible_row(tensors, options, row), tensors, options, order);
}

RowStudy study_row(const ForwardTensors& tensors, const AttentionOptions& options, RowIndex row) {
  const VisibleRow visible = visible_row(tensors, options, row);
  RowStudy study{exact_of(visible, tensors, options), {}};
  for (std::size_t n = 0; n < sum_orders.size(); ++n) {
    study.naive[n] = naive_of(visible, tensors, options, sum_orders[n]);
  }
  return study;
}

}  // namespace tilewise::verify
