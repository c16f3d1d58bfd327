#pragma once

// Functions<T> for the instruction set of this translation unit.

#include "cpu/micro_dots-inl.h"
#include "cpu/micro_softmax-inl.h"
#include "cpu/micro_target.hpp"
#include "cpu/micro_transpose-inl.h"
#include "cpu/simd_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise {
namespace HWY_NAMESPACE {

#define TW_TARGET
#include "core/softmax_step-inl.h"
#undef TW_TARGET

template <class Scalar>
struct VectorLanes {
  using T = Scalar;
  using V = Vec<Scalar>;
  static HWY_INLINE V load(const T* from) { return hn::LoadU(Tag<T>(), from); }
  static HWY_INLINE void store(V v, T* to) { hn::StoreU(v, Tag<T>(), to); }
};

template <class T>
void softmax_step(SoftmaxStep step, std::size_t n, const T* const* in, T* const* out) {
  for (std::size_t at = 0; at < n; at += lanes<T>) run_softmax_step<VectorLanes<T>>(step, in, out, at);
}

template <class T>
void scores_of(std::int64_t rows, int vectors, const T* k, std::int64_t k_stride, const T* q, std::int64_t depth,
               T* s) {
  scores_block(rows, vectors, k, k_stride, q, depth, s);
}

template <class T>
void accumulate(std::int64_t columns, const T* p, const T* v, std::int64_t v_stride,
                const std::vector<micro::Part>& parts, const T* alpha, T* o) {
  Segment segments[16];
  int count = 0;
  for (const micro::Part& part : parts) segments[count++] = {part.begin, part.end, part.first, part.last};
  accumulate_block(columns, p, v, v_stride, segments, count, alpha, o);
}

template <class T>
void accumulate_selected(std::int64_t columns, int vectors, std::int64_t begin, std::int64_t end, const T* p,
                         const T* seen, const T* v, std::int64_t v_stride, const T* alpha, T* o) {
  accumulate_block_by_selection(columns, vectors, begin, end, p, seen, v, v_stride, alpha, o);
}

template <class T>
void one_softmax_block(T* s, std::int64_t begin, std::int64_t end, T unit, T lift, T* m, T* l, T* alpha) {
  softmax_block(s, begin, end, unit, lift, m, l, alpha);
}

template <class T>
void to_lanes(const T* from, std::int64_t stride, std::int64_t columns, T* to) {
  rows_to_lanes(from, stride, columns, to);
}

template <class T>
void to_rows(const T* from, std::int64_t columns, T* to, std::int64_t stride) {
  lanes_to_rows(from, columns, to, stride);
}

template <class T>
void load(const void* from, DType dtype, std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns,
          T* to, std::int64_t to_row) {
  load_rows(Rectangle{from, dtype, row, column}, rows, columns, to, to_row);
}

template <class T>
void dots(const T* k, std::int64_t k_row, std::int64_t keys, const T* q, std::int64_t queries, std::int64_t depth, T* s,
          std::int64_t s_row) {
  dots_block(k, k_row, keys, q, depth, queries, depth, s, s_row, Ahead{});
}

// `v` itself is fetched ahead: that must change nothing.
template <class T>
void values(const T* v, std::int64_t v_row, std::int64_t keys, std::int64_t columns, const T* p, std::int64_t p_row,
            std::int64_t queries, const T* alpha, T* o, T* l) {
  const Ahead ahead{v, v_row * static_cast<tw_i64>(sizeof(T)), columns * static_cast<tw_i64>(sizeof(T))};
  values_block(v, v_row, keys, columns, p, p_row, queries, alpha, o, columns, l, ahead);
}

template <class T>
void values_selected(const T* v, std::int64_t v_row, std::int64_t keys, std::int64_t columns, const T* p, const T* seen,
                     T alpha, T* o, T* l) {
  values_by_selection(v, v_row, keys, columns, p, seen, alpha, o, l);
}

template <class T>
void store(const T* from, std::int64_t columns, void* to, DType dtype, std::int64_t step) {
  store_row(from, columns, Target{to, dtype, 0, step}, 0);
}

}  // namespace HWY_NAMESPACE

namespace micro {

template <class T>
constexpr Functions<T> functions() {
  namespace simd = HWY_NAMESPACE;
  return {simd::lanes<T>,
          simd::tile_vectors,
          simd::softmax_step<T>,
          simd::scores_of<T>,
          simd::accumulate<T>,
          simd::accumulate_selected<T>,
          simd::one_softmax_block<T>,
          simd::to_lanes<T>,
          simd::to_rows<T>,
          simd::load<T>,
          simd::dots<T>,
          simd::values<T>,
          simd::values_selected<T>,
          simd::store<T>};
}

}  // namespace micro
}  // namespace tilewise
HWY_AFTER_NAMESPACE();
