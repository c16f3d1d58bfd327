#pragma once

// Operands of 8x8x8 products, read straight from rows of Q, K and V. Lane i of a simdgroup holds two neighbours of an
// 8x8 matrix: row lane_row(i), columns lane_column(i) and the next.
//
// Two permutations make every load a vector. Q K^T sums over d in any order, so in a group of 8 W columns fragment f
// holds d = W r + f in row r (W = 4 fragments, or 2 in a tail of 16 columns): a lane reads W neighbours of a key. And
// in 16 columns of V and O, fragment f = 0, 1 holds column 2 c + 2 f + e where it would hold column c + e (c even, e =
// 0, 1): a lane reads 4 neighbours. 16-bit elements become float here: all products and sums are in float32.
//
// TILE_SPACE is where K and V are read from: device memory or a staged tile in threadgroup memory.

namespace tilewise {
namespace msl {

typedef simdgroup_float8x8 Fragment;

inline ushort lane_row(ushort lane) { return ushort((lane / 4 & 4) + lane / 2 % 4); }
inline ushort lane_column(ushort lane) { return ushort((lane / 4 & 2) * 2 + lane % 2 * 2); }

// Fragments per group at column d of a head dimension padded to a multiple of 16.
inline constexpr int group_width(int head_dim, int d) { return head_dim - d >= 32 ? 4 : 2; }

inline void set(thread Fragment& fragment, float first, float second) {
  fragment.thread_elements()[0] = first;
  fragment.thread_elements()[1] = second;
}

// 4 or 2 neighbours; the address is a multiple of their size.
#define TW_VECTOR_LOADS(name, space)                                   \
  template <typename T>                                                \
  inline float4 name##4(space const T* p) {                            \
    const vec<T, 4> x = *reinterpret_cast<space const vec<T, 4>*>(p);  \
    return float4(float(x[0]), float(x[1]), float(x[2]), float(x[3])); \
  }                                                                    \
  template <typename T>                                                \
  inline float4 name##2(space const T* p) {                            \
    const vec<T, 2> x = *reinterpret_cast<space const vec<T, 2>*>(p);  \
    return float4(float(x[0]), float(x[1]), 0.0f, 0.0f);               \
  }
TW_VECTOR_LOADS(load_device, device)
TW_VECTOR_LOADS(load_tile, TILE_SPACE)
#undef TW_VECTOR_LOADS

template <typename T>
inline void store_device4(device T* p, float2 x, float2 y) {
  vec<T, 4> v;
  v[0] = T(x[0]);
  v[1] = T(x[1]);
  v[2] = T(y[0]);
  v[3] = T(y[1]);
  *reinterpret_cast<device vec<T, 4>*>(p) = v;
}

// [excerpt: key_fragments]
// `width` fragments of K^T (8 columns of d x 8 keys each), from the group's first column of this lane's two keys.
template <typename T>
inline void key_fragments(TILE_SPACE const T* key0, TILE_SPACE const T* key1, int width, ushort row,
                          thread Fragment* k) {
  const float4 x = width == 4 ? load_tile4(key0 + 4 * row) : load_tile2(key0 + 2 * row);
  const float4 y = width == 4 ? load_tile4(key1 + 4 * row) : load_tile2(key1 + 2 * row);
  for (int f = 0; f < width; ++f) set(k[f], x[f], y[f]);
}
// [end]

// Two fragments of V (8 keys x 8 columns each), from the first of 16 columns of this lane's key.
template <typename T>
inline void value_fragments(TILE_SPACE const T* key, ushort column, thread Fragment* v) {
  const float4 x = load_tile4(key + 2 * column);
  set(v[0], x[0], x[1]);
  set(v[1], x[2], x[3]);
}

// `width` fragments of Q (8 queries x 8 columns of d each), from the group's first column of this lane's query.
template <typename T>
inline void query_fragments(device const T* query, int width, ushort column, thread Fragment* q) {
  const float4 x = width == 4 ? load_device4(query + 4 * column) : load_device4(query + 2 * column);
  if (width == 4) {
    const float4 y = load_device4(query + 4 * column + 4);
    for (int f = 0; f < 4; ++f) set(q[f], x[f], y[f]);
  } else {
    for (int f = 0; f < 2; ++f) set(q[f], x[f], x[f + 2]);
  }
}

}  // namespace msl
}  // namespace tilewise
