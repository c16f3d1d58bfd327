#pragma once

// The second half of the kernel for few queries: partial results of a row are merged in the order of their chunks,
// finished and stored; then the kernel as floor 2 sees it.

#include "cpu/simd_decode-inl.h"
#include "kernel/parallel.hpp"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

// A row merged so far: its maximum in the scores' unit and its sum, in every lane; its O is scratch.total.
template <class T>
struct Total {
  double m;
  Vec<T> l;
};

template <class T>
Total<T> empty_total(const DecodeCall<T>& call, T* o) {
  std::fill_n(o, call.layout.columns, T(0));
  return {static_cast<double>(std::numeric_limits<T>::lowest()), hn::Zero(Tag<T>())};
}

// Adds one partial result. The factors are shared by a whole row, so they come from libm, exact to the last place; l
// takes the same steps as O.
template <class T>
Total<T> merge_partial(const DecodeCall<T>& call, const Units<T>& units, Total<T> total, T m, T l, const T* o,
                       T* total_o) {
  const Tag<T> d;
  const double part = static_cast<double>(m);
  const double largest = total.m > part ? total.m : part;
  const auto factor = [&](double from) {
    return hn::Set(d, static_cast<T>(std::exp((from - largest) * static_cast<double>(units.natural))));
  };
  const Vec<T> old = factor(total.m);
  const Vec<T> fresh = factor(part);
  for (tw_i64 c = 0; c < call.layout.columns; c += lanes<T>) {
    hn::Store(hn::MulAdd(hn::Load(d, o + c), fresh, hn::Mul(hn::Load(d, total_o + c), old)), d, total_o + c);
  }
  return {largest, hn::MulAdd(hn::Set(d, l), fresh, hn::Mul(total.l, old))};
}

// What a row's total comes to: the result is O * kept / l.
struct Finished {
  double lse;
  double kept;
  double l;
  bool finite;
};

// The sink joins last, in natural units.
template <class T>
Finished finished(const DecodeCall<T>& call, const Units<T>& units, tw_i64 h, const Total<T>& total) {
  double m = total.m * static_cast<double>(units.natural);
  double l = static_cast<double>(hn::GetLane(total.l));
  double kept = 1;
  const double sink =
      call.p.sinks.present() ? static_cast<double>(sink_of(call, h)) : -std::numeric_limits<double>::infinity();
  if (sink != -std::numeric_limits<double>::infinity()) {
    const double largest = l == 0 || !(m > sink) ? sink : m;
    kept = l == 0 ? 1 : std::exp(m - largest);
    l = l * kept + std::exp(sink - largest);  // NaN for an infinite sink
    m = largest;
  }
  if (l == 0) return {-std::numeric_limits<double>::infinity(), 0, 1, true};  // nothing seen: O is 0
  return {m + std::log(l), kept, l, std::isfinite(m) && std::isfinite(l)};
}

// O / l in place; whether the result can stand.
template <class T>
bool normalise_row(const DecodeCall<T>& call, const Finished& row, T* o) {
  const Tag<T> d;
  Vec<T> bad = hn::Zero(d);
  const Vec<T> kept = hn::Set(d, static_cast<T>(row.kept));
  const Vec<T> l = hn::Set(d, static_cast<T>(row.l));
  for (tw_i64 c = 0; c < call.layout.columns; c += lanes<T>) {
    const Vec<T> x = hn::Add(hn::Div(hn::Mul(hn::Load(d, o + c), kept), l), hn::Zero(d));  // + 0: never -0
    bad = hn::MulAdd(x, hn::Zero(d), bad);
    hn::Store(x, d, o + c);
  }
  return row.finite && hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

template <class T>
void store_row_of(const DecodeCall<T>& call, const RowGroup& group, tw_i64 row, const Finished& result, const T* o) {
  const Problem& p = call.p;
  const tw_i64 i = group.sequence.q_start + group.query(row);
  const tw_i64 at = core::offset_of(call.o, group.sequence.q_item, group.head(row), i, 0);
  const auto bytes = static_cast<tw_i64>(size_of(p.dtype));
  store_row(o, p.v_dim, Target{static_cast<char*>(call.buffers.o) + at * bytes, p.dtype, 0, call.o.d}, 0);
  if (!p.lse.present()) return;
  const tw_i64 lse_at = core::offset_of(call.lse, group.sequence.q_item, group.head(row), i, 0);
  static_cast<T*>(call.buffers.lse)[lse_at] = static_cast<T>(result.lse);
}

// A row all over again, its chunks in order, with more care; stores it if it can stand or if `always`.
template <class T>
bool redo_row(const DecodeCall<T>& call, const RowGroup& group, Care care, tw_i64 row, bool always,
              const DecodeScratch<T>& scratch) {
  RowGroup alone = group;
  alone.rows = {row, row + 1};
  const Units<T> units = units_of<T>(call, group.head(row), care);
  Total<T> total = empty_total(call, scratch.total);
  const tw_i64 keys = chunk_keys(call.layout, group.sequence.k_len);
  for (tw_i64 begin = 0; begin < group.sequence.k_len; begin += keys) {
    attend_chunk(call, alone, care, {begin, core::min_i64(begin + keys, group.sequence.k_len)}, scratch);
    total = merge_partial(call, units, total, scratch.m[0], scratch.l[0], scratch.o, scratch.total);
  }
  const Finished result = finished(call, units, group.head(row), total);
  const bool stands = normalise_row(call, result, scratch.total);
  if (stands || always) store_row_of(call, group, row, result, scratch.total);
  return stands;
}

// Merges the partials of every row of the group, [chunks, rows, partial] at `partials`, and stores the results.
template <class T>
void merge_group(const DecodeCall<T>& call, const RowGroup& group, tw_i64 chunks, const T* partials,
                 const DecodeScratch<T>& scratch) {
  const tw_i64 rows = group.rows.end - group.rows.begin;
  for (tw_i64 row = group.rows.begin; row < group.rows.end; ++row) {
    const Units<T> units = units_of<T>(call, group.head(row), Care::fast);
    Total<T> total = empty_total(call, scratch.total);
    for (tw_i64 chunk = 0; chunk < chunks; ++chunk) {
      const T* const o = partials + (chunk * rows + row - group.rows.begin) * call.layout.partial;
      const T* const state = o + call.layout.columns;
      total = merge_partial(call, units, total, state[0], state[1], o, scratch.total);
    }
    const Finished result = finished(call, units, group.head(row), total);
    if (normalise_row(call, result, scratch.total)) {
      store_row_of(call, group, row, result, scratch.total);
    } else if (!redo_row(call, group, Care::by_selection, row, true, scratch)) {
      redo_row(call, group, Care::extreme, row, false, scratch);
    }
  }
}

// Task (group, chunk): the partials of one chunk into `partials`.
template <class T>
void chunk_task(const DecodeCall<T>& call, const RowGroup& group, tw_i64 chunk, T* partials,
                const DecodeScratch<T>& scratch) {
  const tw_i64 keys = chunk_keys(call.layout, group.sequence.k_len);
  attend_chunk(call, group, Care::fast, {chunk * keys, core::min_i64((chunk + 1) * keys, group.sequence.k_len)},
               scratch);
  const tw_i64 rows = group.rows.end - group.rows.begin;
  for (tw_i64 r = 0; r < rows; ++r) {
    T* const o = partials + (chunk * rows + r) * call.layout.partial;
    std::copy_n(scratch.o + r * call.layout.columns, call.layout.columns, o);
    o[call.layout.columns] = scratch.m[r];
    o[call.layout.columns + 1] = scratch.l[r];
  }
}

// Group `index` of (item, KV head, rows); empty when the sequence has fewer rows.
template <class T>
RowGroup group_at(const DecodeCall<T>& call, tw_i64 index) {
  const Problem& p = call.p;
  const tw_i64 part = index % call.layout.row_groups;
  const tw_i64 kv_head = index / call.layout.row_groups % p.kv_heads;
  const tw_i64 b = index / call.layout.row_groups / p.kv_heads;
  const core::Sequence sequence = sequence_of(p, call.buffers, b);
  const core::Range rows = core::split_range(call.layout.group * sequence.q_len, group_rows, part);
  return {sequence, band_for(p, sequence), b, kv_head, kv_head * call.layout.group, rows};
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
