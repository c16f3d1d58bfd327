#pragma once

// Few queries over many keys: a group of rows attends to one chunk of keys; partial results over the chunks of a
// sequence are merged in order (flash decoding: Dao, Haziza, Massa and Sizov 2023). A row's bits depend on its own
// sequence alone.

#include "cpu/float_environment.hpp"
#include "cpu/padding.hpp"
#include "cpu/simd_call-inl.h"
#include "cpu/simd_decode_layout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

// A step may begin at multiples of this in a block, so that its scores are aligned.
template <class T>
inline constexpr tw_i64 key_places = lanes<T> > dot_keys ? lanes<T> : dot_keys;

template <class T>
struct DecodeCall : Call<T> {
  DecodeLayout<T> layout;
};

// Rows [rows.begin, rows.end) of the query heads that read one KV head; row r is query r % q_len of head r / q_len.
struct RowGroup {
  core::Sequence sequence;
  core::Band band;
  tw_i64 b;
  tw_i64 kv_head;
  tw_i64 first_head;
  core::Range rows;

  [[nodiscard]] tw_i64 head(tw_i64 row) const { return first_head + row / sequence.q_len; }
  [[nodiscard]] tw_i64 query(tw_i64 row) const { return row % sequence.q_len; }
};

// The rows of Q in compute type, with the sign of the scale, padded with zeros; m, l and O of rows without keys.
template <class T>
void load_rows_of(const DecodeCall<T>& call, const RowGroup& group, const DecodeScratch<T>& scratch) {
  const Tag<T> d;
  const Problem& p = call.p;
  const auto bytes = static_cast<tw_i64>(size_of(p.dtype));
  const Rows<Vec<T>> none = no_keys<Vec<T>>();
  for (tw_i64 row = group.rows.begin; row < group.rows.end; ++row) {
    const tw_i64 r = row - group.rows.begin;
    T* const q = scratch.q + r * call.layout.depth;
    const tw_i64 i = group.sequence.q_start + group.query(row);
    const tw_i64 at = core::offset_of(call.q, group.sequence.q_item, group.head(row), i, 0);
    const Rectangle from{static_cast<const char*>(call.buffers.q) + at * bytes, p.dtype, 0, call.q.d};
    load_rows(from, 1, p.head_dim, q, call.layout.depth);
    std::fill_n(q + p.head_dim, call.layout.depth - p.head_dim, T(0));
    if (p.scale < 0) {
      for (tw_i64 c = 0; c < call.layout.depth; c += lanes<T>) hn::Store(hn::Neg(hn::Load(d, q + c)), d, q + c);
    }
    scratch.m[r] = hn::GetLane(none.m);
    scratch.l[r] = hn::GetLane(none.l);
    std::fill_n(scratch.o + r * call.layout.columns, call.layout.columns, T(0));
  }
}

// One row of a mask or bias array for keys [keys.begin, keys.end) of the block at `begin`.
template <class T>
void load_pair_row(const TensorSpec& spec, const void* data, const RowGroup& group, tw_i64 row, tw_i64 begin,
                   core::Range keys, T* to) {
  const core::Strides strides = strides_of(spec);
  const tw_i64 at = core::offset_of(strides, group.b, group.head(row), group.query(row), begin + keys.begin);
  const Rectangle from{static_cast<const char*>(data) + at * static_cast<tw_i64>(size_of(spec.dtype)), spec.dtype, 0,
                       strides.d};
  load_rows(from, 1, keys.end - keys.begin, to + keys.begin, decode_block);
}

// Dot products of one row become scores, -inf where it does not see the key; returns the largest. `keys` are whole
// vectors of the block.
template <class T>
HWY_NOINLINE T score_row(const DecodeCall<T>& call, const RowGroup& group, const Units<T>& units, Care care, tw_i64 row,
                         tw_i64 begin, core::Range keys, const DecodeScratch<T>& scratch) {
  using V = Vec<T>;
  const Tag<T> d;
  const Problem& p = call.p;
  const tw_i64 r = row - group.rows.begin;
  const tw_i64 i = group.query(row);
  const core::Range present{keys.begin, core::min_i64(keys.end, group.sequence.k_len - begin)};  // not its padding
  if (p.mask.present()) load_pair_row(p.mask, call.buffers.mask, group, row, begin, present, scratch.mask);
  if (p.bias.present()) load_pair_row(p.bias, call.buffers.bias, group, row, begin, present, scratch.bias);
  const core::Range seen = core::visible_keys(group.band, i, group.sequence.k_len);
  const V from = hn::Set(d, static_cast<T>(core::clamp_i64(seen.begin - begin, 0, decode_block)));
  const V to = hn::Set(d, static_cast<T>(core::clamp_i64(seen.end - begin, 0, decode_block)));
  const ScoreTerms<T> terms = score_terms<T>(call, group.sequence, group.b, group.head(row));
  const tw_i64 distance = core::alibi_distance(i, begin, terms.delta);
  V largest = Ops<V>::minus_infinity();
  for (tw_i64 key = keys.begin; key < keys.end; key += lanes<T>) {
    T* const s = scratch.s + r * decode_block + key;
    const V place = hn::Iota(d, static_cast<T>(key));
    auto visible = hn::And(hn::Ge(place, from), hn::Lt(place, to));
    V x = hn::Load(d, s);
    V bias = hn::Zero(d);
    if (p.bias.present()) {
      bias = hn::Load(d, scratch.bias + key);
      visible = hn::And(visible, differs(bias, Ops<V>::minus_infinity()));
    }
    if (p.mask.present()) visible = hn::And(visible, differs(hn::Load(d, scratch.mask + key), hn::Zero(d)));
    if (units.staged) {
      const V away = hn::Sub(hn::Set(d, static_cast<T>(distance)), place);
      x = staged_score(terms, p, x, bias, away);
    }
    x = hn::IfThenElse(visible, x, Ops<V>::minus_infinity());
    hn::Store(x, d, s);
    largest = hn::Max(largest, x);
    if (care != Care::fast) {
      hn::Store(hn::IfThenElseZero(visible, Ops<V>::one()), d, scratch.visible + r * decode_block + key);
    }
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// One step of the online softmax for one row: scores become weights; l is rescaled, their sum not yet added.
template <class T>
HWY_NOINLINE void softmax_row(const Units<T>& units, T block_max, tw_i64 r, core::Range keys,
                              const DecodeScratch<T>& scratch) {
  using V = Vec<T>;
  const Tag<T> d;
  const V unit = hn::Set(d, units.log2);
  const Rows<V> before{hn::Set(d, scratch.m[r]), hn::Set(d, scratch.l[r])};
  const Grown<V> grown = grow(before, hn::Set(d, block_max + units.lift), unit);
  for (tw_i64 key = keys.begin; key < keys.end; key += lanes<T>) {
    T* const s = scratch.s + r * decode_block + key;
    hn::Store(weight(hn::Load(d, s), grown.rows.m, unit), d, s);
  }
  scratch.m[r] = hn::GetLane(grown.rows.m);
  scratch.l[r] = hn::GetLane(grown.rows.l);
  scratch.alpha[r] = hn::GetLane(grown.alpha);
}

// V of this block while its scores are computed, K of the next while its values are summed.
struct Soon {
  Ahead v;
  Ahead next_k;
};

// The group against keys [keys.begin, keys.end) of the block that begins at `begin`; K and V are Stored in memory.
template <class Stored, class T>
void attend_rows(const DecodeCall<T>& call, const RowGroup& group, Care care, tw_i64 begin, core::Range keys,
                 const Stored* k, tw_i64 k_row, const Stored* v, tw_i64 v_row, const Soon& soon,
                 const DecodeScratch<T>& scratch) {
  const DecodeLayout<T>& layout = call.layout;
  const tw_i64 rows = group.rows.end - group.rows.begin;
  const tw_i64 count = keys.end - keys.begin;
  const core::Range whole{keys.begin, whole_vectors<T>(keys.end)};
  dots_block(k, k_row, count, scratch.q, layout.depth, rows, layout.depth, scratch.s + keys.begin, decode_block,
             soon.v);
  for (tw_i64 r = 0; r < rows; ++r) {
    const tw_i64 row = group.rows.begin + r;
    const Units<T> units = units_of<T>(call, group.head(row), care);
    const T block_max = score_row(call, group, units, care, row, begin, whole, scratch);
    softmax_row(units, block_max, r, whole, scratch);
  }
  if (care == Care::fast) {
    values_block(v, v_row, count, layout.columns, scratch.s + keys.begin, decode_block, rows, scratch.alpha, scratch.o,
                 layout.columns, scratch.l, soon.next_k);
    return;
  }
  for (tw_i64 r = 0; r < rows; ++r) {
    const tw_i64 at = r * decode_block + keys.begin;
    values_by_selection(v, v_row, count, layout.columns, scratch.s + at, scratch.visible + at, scratch.alpha[r],
                        scratch.o + r * layout.columns, scratch.l + r);
  }
}

// K and V of a block where they are, or copied: widened, gathered, padded with zeros to whole vectors. There are
// `following` keys behind the block.
template <class Stored, class T>
void attend_block_of(const DecodeCall<T>& call, const RowGroup& group, Care care, tw_i64 begin, core::Range keys,
                     tw_i64 following, const DecodeScratch<T>& scratch) {
  const Problem& p = call.p;
  const DecodeLayout<T>& layout = call.layout;
  const tw_i64 first = group.sequence.k_start + begin + keys.begin;
  const auto rows_from = [&](const void* data, core::Strides strides) {
    const tw_i64 at = core::offset_of(strides, group.sequence.k_item, group.kv_head, first, 0);
    return Rectangle{static_cast<const Stored*>(data) + at, p.dtype, strides.s, strides.d};
  };
  const Rectangle k = rows_from(call.buffers.k, call.k);
  const Rectangle v = rows_from(call.buffers.v, call.v);
  const auto rows_of = [](Rectangle from, tw_i64 first_row, tw_i64 columns) {
    constexpr auto bytes = static_cast<tw_i64>(sizeof(Stored));
    return Ahead{static_cast<const char*>(from.data) + first_row * from.row * bytes, from.row * bytes, columns * bytes};
  };
  Soon soon{};
  if (v.column == 1 && !layout.copy_v) soon.v = rows_of(v, 0, p.v_dim);
  if (k.column == 1 && following >= decode_block) soon.next_k = rows_of(k, keys.end - keys.begin, p.head_dim);
  const auto copy = [&](Rectangle from, tw_i64 columns, tw_i64 padded, T* to) {
    load_rows(from, keys.end - keys.begin, columns, to, padded);
    for (tw_i64 r = 0; padded > columns && r < keys.end - keys.begin; ++r) {
      std::fill_n(to + r * padded + columns, padded - columns, T(0));
    }
  };
  if (layout.copy_k) copy(k, p.head_dim, layout.depth, scratch.k);
  if (layout.copy_v) copy(v, p.v_dim, layout.columns, scratch.v);
  if constexpr (std::is_same_v<Stored, T>) {
    attend_rows(call, group, care, begin, keys, layout.copy_k ? scratch.k : elements<T>(k),
                layout.copy_k ? layout.depth : k.row, layout.copy_v ? scratch.v : elements<T>(v),
                layout.copy_v ? layout.columns : v.row, soon, scratch);
  } else if (layout.copy_k) {
    attend_rows(call, group, care, begin, keys, scratch.k, layout.depth, scratch.v, layout.columns, soon, scratch);
  } else {
    attend_rows(call, group, care, begin, keys, elements<Stored>(k), k.row, elements<Stored>(v), v.row, soon, scratch);
  }
}

// The group's partial result over the keys of `chunk`, in scratch.o, m and l.
template <class T>
void attend_chunk(const DecodeCall<T>& call, const RowGroup& group, Care care, core::Range chunk,
                  const DecodeScratch<T>& scratch) {
  load_rows_of(call, group, scratch);
  // Rows of several heads: all their queries. Rows of one head: theirs.
  const bool one_head = group.head(group.rows.begin) == group.head(group.rows.end - 1);
  const core::Range queries = one_head ? core::Range{group.query(group.rows.begin), group.query(group.rows.end - 1) + 1}
                                       : core::Range{0, group.sequence.q_len};
  const core::Range seen = core::visible_keys_of(group.band, queries, group.sequence.k_len);
  const core::Range keys{core::max_i64(chunk.begin, seen.begin), core::min_i64(chunk.end, seen.end)};
  for (tw_i64 at = keys.begin; at < keys.end;) {
    const tw_i64 begin = at / decode_block * decode_block;
    const tw_i64 end = core::min_i64(begin + decode_block, keys.end);
    const core::Range part{(at - begin) / key_places<T> * key_places<T>, end - begin};
    if constexpr (sizeof(T) == 8) {
      attend_block_of<double>(call, group, care, begin, part, keys.end - end, scratch);
    } else if (call.p.dtype == DType::float16) {
      attend_block_of<Float16>(call, group, care, begin, part, keys.end - end, scratch);
    } else if (call.p.dtype == DType::bfloat16) {
      attend_block_of<BFloat16>(call, group, care, begin, part, keys.end - end, scratch);
    } else {
      attend_block_of<float>(call, group, care, begin, part, keys.end - end, scratch);
    }
    at = end;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
