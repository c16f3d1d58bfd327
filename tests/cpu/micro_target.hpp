#pragma once

// The micro-kernels of one instruction set behind plain functions, so that one test file holds all sets to the same
// definitions.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/softmax_step.h"
#include "tilewise/types.hpp"

namespace tilewise::micro {

// Keys [begin, end) of which vectors [first, last) are live.
struct Part {
  std::int64_t begin;
  std::int64_t end;
  int first;
  int last;
};

template <class T>
struct Functions {
  int lanes;
  int vectors;  // of a tile
  void (*softmax_step)(SoftmaxStep step, std::size_t n, const T* const* in, T* const* out);
  void (*scores)(std::int64_t rows, int vectors, const T* k, std::int64_t k_stride, const T* q, std::int64_t depth,
                 T* s);
  void (*accumulate)(std::int64_t columns, const T* p, const T* v, std::int64_t v_stride,
                     const std::vector<Part>& parts, const T* alpha, T* o);
  void (*accumulate_by_selection)(std::int64_t columns, int vectors, std::int64_t begin, std::int64_t end, const T* p,
                                  const T* seen, const T* v, std::int64_t v_stride, const T* alpha, T* o);
  void (*softmax_block)(T* s, std::int64_t begin, std::int64_t end, T unit, T lift, T* m, T* l, T* alpha);
  void (*rows_to_lanes)(const T* from, std::int64_t stride, std::int64_t columns, T* to);
  void (*lanes_to_rows)(const T* from, std::int64_t columns, T* to, std::int64_t stride);
  void (*load_rows)(const void* from, DType dtype, std::int64_t row, std::int64_t column, std::int64_t rows,
                    std::int64_t columns, T* to, std::int64_t to_row);
  // Of few queries: everything is row-major, K and V in compute type.
  void (*dots)(const T* k, std::int64_t k_row, std::int64_t keys, const T* q, std::int64_t queries, std::int64_t depth,
               T* s, std::int64_t s_row);
  void (*values)(const T* v, std::int64_t v_row, std::int64_t keys, std::int64_t columns, const T* p,
                 std::int64_t p_row, std::int64_t queries, const T* alpha, T* o, T* l);
  void (*values_by_selection)(const T* v, std::int64_t v_row, std::int64_t keys, std::int64_t columns, const T* p,
                              const T* seen, T alpha, T* o, T* l);
  void (*store_row)(const T* from, std::int64_t columns, void* to, DType dtype, std::int64_t step);
};

struct Target {
  const char* name;
  std::uint32_t feature;  // isa:: bit
  Functions<float> f32;
  Functions<double> f64;
};

template <class T>
const Functions<T>& functions_of(const Target& target) {
  if constexpr (sizeof(T) == 4) {
    return target.f32;
  } else {
    return target.f64;
  }
}

extern const Target sse4;
extern const Target avx2;
extern const Target avx512;
extern const Target neon;

// Those that this machine can run.
std::vector<const Target*> targets();

}  // namespace tilewise::micro
