// simdgroup_matrix: 8x8 elements spread over 32 lanes, two each. Lane i holds row (q & 4) + (i / 2) % 4 and columns
// (q & 2) * 2 + (i % 2) * 2 and the next, with q = i / 4: the layout observed from M1 to M4.
#ifndef TW_MATRIX_H
#define TW_MATRIX_H

#include "tw/simd.h"

namespace metal {

template <class T, int Rows, int Cols>
struct simdgroup_matrix;

}  // namespace metal

namespace tw {

TW_INLINE int matrix_row(int lane) { return ((lane / 4) & 4) + (lane / 2) % 4; }
TW_INLINE int matrix_column(int lane) { return ((lane / 4) & 2) * 2 + (lane % 2) * 2; }

TW_INLINE float number(float x) { return x; }
TW_INLINE float number(half x) { return static_cast<float>(x); }
TW_INLINE float number(bfloat x) { return static_cast<float>(x); }
#ifdef TW_COUNTING
TW_INLINE float number(Float x) { return x.v; }
#endif

struct MatrixProduct {
  const void* a;
  const void* b;
  const void* c;  // null: no addend
  void* d;
};

// d = a * b + c with fused multiply-adds in the order of k, in float32, rounded once to D.
template <class D, class A, class B, class C>
TW_UNTRACED void matrix_product(void* const* posted) {
  alignas(64) float a[8][8], b[8][8], d[8][8];
  for (int i = 0; i < lanes; ++i) {
    if (posted[i] == nullptr) {
      tw_report("simd", "matrix product in a simdgroup with fewer than 32 threads");
      return;
    }
    const MatrixProduct& block = *static_cast<MatrixProduct*>(posted[i]);
    const int row = matrix_row(i), column = matrix_column(i);
    for (int e = 0; e < 2; ++e) {
      a[row][column + e] = number(static_cast<const A*>(block.a)[e]);
      b[row][column + e] = number(static_cast<const B*>(block.b)[e]);
      d[row][column + e] = block.c != nullptr ? number(static_cast<const C*>(block.c)[e]) : 0.0f;
    }
  }
  for (int i = 0; i < 8; ++i) {
    for (int k = 0; k < 8; ++k) {
      for (int j = 0; j < 8; ++j) d[i][j] = __builtin_fmaf(a[i][k], b[k][j], d[i][j]);
    }
  }
  for (int i = 0; i < lanes; ++i) {
    const MatrixProduct& block = *static_cast<MatrixProduct*>(posted[i]);
    for (int e = 0; e < 2; ++e) static_cast<D*>(block.d)[e] = D(d[matrix_row(i)][matrix_column(i) + e]);
  }
}

template <class T>
struct MatrixMemory {
  T* elements;
  T* memory;
  ulong per_row;
  long origin_x;  // column
  long origin_y;  // row
  bool transpose;
};

template <class T, bool write>
TW_UNTRACED void matrix_memory(void* const* posted) {
  const MatrixMemory<T>* first = static_cast<MatrixMemory<T>*>(posted[0]);
  for (int i = 0; i < lanes; ++i) {
    const MatrixMemory<T>* block = static_cast<MatrixMemory<T>*>(posted[i]);
    if (block == nullptr) {
      tw_report("simd", "matrix load or store in a simdgroup with fewer than 32 threads");
      return;
    }
    if (block->memory != first->memory || block->per_row != first->per_row || block->origin_x != first->origin_x ||
        block->origin_y != first->origin_y || block->transpose != first->transpose) {
      tw_report("simd", "lanes of one simdgroup pass different addresses to a matrix load or store");
      return;
    }
  }
  T* const memory = first->memory + first->origin_y * static_cast<long>(first->per_row) + first->origin_x;
  for (int row = 0; row < 8; ++row) {  // rows of memory
    if (!tw_matrix_access(memory + row * static_cast<long>(first->per_row), 8 * sizeof(T), write)) return;
  }
  for (int i = 0; i < lanes; ++i) {
    T* const elements = static_cast<MatrixMemory<T>*>(posted[i])->elements;
    for (int e = 0; e < 2; ++e) {
      const int row = matrix_row(i), column = matrix_column(i) + e;
      T* const place = first->transpose ? memory + column * static_cast<long>(first->per_row) + row
                                        : memory + row * static_cast<long>(first->per_row) + column;
      if (write) {
        *place = elements[e];
      } else {
        elements[e] = *place;
      }
    }
  }
}

}  // namespace tw

namespace metal {

template <class T>
struct simdgroup_matrix<T, 8, 8> {
  typedef vec<T, 2> storage_type;
  storage_type elements;

  // Unset elements are poisoned: a product with them shows.
  TW_INLINE simdgroup_matrix() : elements(T(__builtin_nanf(""))) {}
  // A diagonal matrix; make_filled_simdgroup_matrix fills all 64.
  TW_INLINE explicit simdgroup_matrix(T diagonal) {
    const int lane = static_cast<int>(tw_lane_index());
    const int row = tw::matrix_row(lane), column = tw::matrix_column(lane);
    elements.x = row == column ? diagonal : T(0);
    elements.y = row == column + 1 ? diagonal : T(0);
  }
  TW_INLINE storage_type& thread_elements() { return elements; }
  TW_INLINE const storage_type& thread_elements() const { return elements; }
};

typedef simdgroup_matrix<tw_float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<::bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Rows = 8, int Cols = 8>
TW_INLINE simdgroup_matrix<T, Rows, Cols> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Rows, Cols> m;
  m.elements = vec<T, 2>(value);
  return m;
}

template <class D, class A, class B, class C>
TW_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                             const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<C, 8, 8>& c) {
  tw::MatrixProduct block = {&a.elements, &b.elements, &c.elements, &d.elements};
  tw_collective(tw_op_matrix_product, &block, &tw::matrix_product<D, A, B, C>);
}
template <class D, class A, class B>
TW_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                  const simdgroup_matrix<B, 8, 8>& b) {
  tw::MatrixProduct block = {&a.elements, &b.elements, nullptr, &d.elements};
  tw_collective(tw_op_matrix_product, &block, &tw::matrix_product<D, A, B, D>);
}

template <class T>
TW_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* memory, ulong elements_per_row = 8,
                              vec<ulong, 2> matrix_origin = vec<ulong, 2>(0ul), bool transpose_matrix = false) {
  tw::MatrixMemory<T> block = {&m.elements[0],
                               const_cast<T*>(memory),
                               elements_per_row,
                               static_cast<long>(matrix_origin.x),
                               static_cast<long>(matrix_origin.y),
                               transpose_matrix};
  tw_collective(transpose_matrix ? tw_op_matrix_memory_transposed : tw_op_matrix_memory, &block,
                &tw::matrix_memory<T, false>);
}
template <class T>
TW_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* memory, ulong elements_per_row = 8,
                               vec<ulong, 2> matrix_origin = vec<ulong, 2>(0ul), bool transpose_matrix = false) {
  tw::MatrixMemory<T> block = {
      const_cast<T*>(&m.elements[0]),     memory,          elements_per_row, static_cast<long>(matrix_origin.x),
      static_cast<long>(matrix_origin.y), transpose_matrix};
  tw_collective(transpose_matrix ? tw_op_matrix_memory_transposed : tw_op_matrix_memory, &block,
                &tw::matrix_memory<T, true>);
}

}  // namespace metal

#endif
