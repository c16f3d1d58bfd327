#pragma once

// The second half of the kernel for few queries: partial results of a row are merged in the order of their chunks,
// finished and stored; then the kernel as floor 2 sees it.

#include "cpu/simd_decode-inl.h"
#include "kernel/parallel.hpp"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

// Adds one partial result (m, l, o) to a row's total, whose O is scratch.total.
template <class T>
Rows<Vec<T>> merge_partial(const DecodeCall<T>& call, const Units<T>& units, Rows<Vec<T>> total, T m, T l, const T* o,
                           T* total_o) {
  const Tag<T> d;
  const auto merged = merge(total, Rows<Vec<T>>{hn::Set(d, m), hn::Set(d, l)}, hn::Set(d, units.log2));
  for (tw_i64 c = 0; c < call.layout.columns; c += lanes<T>) {
    const Vec<T> kept = hn::Mul(hn::Load(d, total_o + c), merged.wa);
    hn::Store(hn::MulAdd(hn::Load(d, o + c), merged.wb, kept), d, total_o + c);
  }
  return merged.rows;
}

template <class T>
Rows<Vec<T>> empty_total(const DecodeCall<T>& call, const RowGroup& group, const Units<T>& units, tw_i64 row,
                         T* total_o) {
  std::fill_n(total_o, call.layout.columns, T(0));
  return first_rows<T>(call, group.head(row), units);
}

// O / l in place; whether the result can stand.
template <class T>
bool normalise_row(const DecodeCall<T>& call, const Units<T>& units, Rows<Vec<T>> rows, T* o) {
  const Tag<T> d;
  Vec<T> bad = not_finite(units, rows);
  const Vec<T> inverse = inverse_sum(rows);
  for (tw_i64 c = 0; c < call.layout.columns; c += lanes<T>) {
    const Vec<T> x = hn::MulAdd(hn::Load(d, o + c), inverse, hn::Zero(d));  // + 0: never -0
    bad = hn::MulAdd(x, hn::Zero(d), bad);
    hn::Store(x, d, o + c);
  }
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

template <class T>
void store_row_of(const DecodeCall<T>& call, const RowGroup& group, const Units<T>& units, tw_i64 row,
                  Rows<Vec<T>> rows, const T* o) {
  const Problem& p = call.p;
  const tw_i64 i = group.sequence.q_start + group.query(row);
  const tw_i64 at = core::offset_of(call.o, group.sequence.q_item, group.head(row), i, 0);
  const auto bytes = static_cast<tw_i64>(size_of(p.dtype));
  store_row(o, p.v_dim, Target{static_cast<char*>(call.buffers.o) + at * bytes, p.dtype, 0, call.o.d}, 0);
  if (!p.lse.present()) return;
  const tw_i64 lse_at = core::offset_of(call.lse, group.sequence.q_item, group.head(row), i, 0);
  static_cast<T*>(call.buffers.lse)[lse_at] = hn::GetLane(lse(rows, hn::Set(Tag<T>(), units.natural)));
}

// A row all over again, its chunks in order, with more care; stores it if it can stand or if `always`.
template <class T>
bool redo_row(const DecodeCall<T>& call, const RowGroup& group, Care care, tw_i64 row, bool always,
              const DecodeScratch<T>& scratch) {
  RowGroup alone = group;
  alone.rows = {row, row + 1};
  const Units<T> units = units_of<T>(call, group.head(row), care);
  Rows<Vec<T>> total = empty_total(call, group, units, row, scratch.total);
  const tw_i64 keys = chunk_keys(call.layout, group.sequence.k_len);
  for (tw_i64 begin = 0; begin < group.sequence.k_len; begin += keys) {
    attend_chunk(call, alone, care, {begin, core::min_i64(begin + keys, group.sequence.k_len)}, scratch);
    total = merge_partial(call, units, total, scratch.m[0], scratch.l[0], scratch.o, scratch.total);
  }
  const bool stands = normalise_row(call, units, total, scratch.total);
  if (stands || always) store_row_of(call, group, units, row, total, scratch.total);
  return stands;
}

// Merges the partials of every row of the group, [chunks, rows, partial] at `partials`, and stores the results.
template <class T>
void merge_group(const DecodeCall<T>& call, const RowGroup& group, tw_i64 chunks, const T* partials,
                 const DecodeScratch<T>& scratch) {
  const tw_i64 rows = group.rows.end - group.rows.begin;
  for (tw_i64 row = group.rows.begin; row < group.rows.end; ++row) {
    const Units<T> units = units_of<T>(call, group.head(row), Care::fast);
    Rows<Vec<T>> total = empty_total(call, group, units, row, scratch.total);
    for (tw_i64 chunk = 0; chunk < chunks; ++chunk) {
      const T* const o = partials + (chunk * rows + row - group.rows.begin) * call.layout.partial;
      const T* const state = o + call.layout.columns;
      total = merge_partial(call, units, total, state[0], state[1], o, scratch.total);
    }
    if (normalise_row(call, units, total, scratch.total)) {
      store_row_of(call, group, units, row, total, scratch.total);
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
