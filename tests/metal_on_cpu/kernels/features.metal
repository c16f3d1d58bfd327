// Exercises what the bench implements of MSL; features.cpp knows the answers.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "core/tile_range.h"

using namespace metal;
using namespace tilewise::core;

constant float table[4] = {1.0f, 2.0f, 4.0f, 8.0f};

struct Shape {
  long rows;
  int columns;
  float scale;
};

// c = scale * a * b^T with a [8, 8] in rows of `columns`, b the same; through threadgroup memory.
template <typename T>
[[kernel]] void matrix(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device float* c [[buffer(2)]],
                       constant Shape& shape [[buffer(3)]], device T* copy [[buffer(4)]],
                       uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T staged[8 * 12];
  threadgroup float product[64];
  simdgroup_matrix<T, 8, 8> ma, mb;
  simdgroup_matrix<float, 8, 8> mc = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(ma, a, ulong(shape.columns));
  for (uint i = lane; i < 64; i += 32) staged[i / 8 * 12 + i % 8] = b[i / 8 * uint(shape.columns) + i % 8];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(mb, staged, 12, ulong2(0, 0), true);
  simdgroup_multiply_accumulate(mc, ma, mb, mc);
  mc.thread_elements() *= shape.scale;
  simdgroup_store(mc, product, 8);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < 64; i += 32) c[i] = product[i];
  simdgroup_store(ma, copy, 16, ulong2(8, 1), true);
}
template [[host_name("matrix_float")]] kernel void matrix<float>(device const float*, device const float*,
                                                                 device float*, constant Shape&, device float*, uint);
template [[host_name("matrix_half")]] kernel void matrix<half>(device const half*, device const half*, device float*,
                                                               constant Shape&, device half*, uint);
template [[host_name("matrix_bfloat")]] kernel void matrix<bfloat>(device const bfloat*, device const bfloat*,
                                                                   device float*, constant Shape&, device bfloat*,
                                                                   uint);

// thread_elements against the layout that the kernels rely on, and the diagonal constructor.
kernel void layout(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                   uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, a, 8);
  const uint quad = lane / 4;
  const uint row = (quad & 4) + (lane / 2) % 4;
  const uint column = (quad & 2) * 2 + (lane % 2) * 2;
  out[row * 8 + column] = m.thread_elements()[0];
  out[row * 8 + column + 1] = m.thread_elements()[1];
  simdgroup_float8x8 diagonal(3.0f), square;
  simdgroup_multiply(square, diagonal, m);
  out[64 + row * 8 + column] = square.thread_elements().x;
  out[64 + row * 8 + column + 1] = square.thread_elements().y;
}

// One row of 16 results per lane.
kernel void simd(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                 uint lane [[thread_index_in_simdgroup]], uint group_thread [[thread_index_in_threadgroup]],
                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const float v = x[group_thread];
  device float* row = out + group_thread * 16;
  row[0] = simd_sum(v);
  row[1] = simd_max(v);
  row[2] = simd_min(v);
  row[3] = simd_shuffle_xor(v, 5);
  row[4] = simd_shuffle_up(v, 3);
  row[5] = simd_shuffle_down(v, 2);
  row[6] = simd_broadcast(v, 7);
  row[7] = simd_shuffle(v, ushort((lane + 1) % 32));
  row[8] = simd_any(lane == 4) ? 1.0f : 0.0f;
  row[9] = simd_all(v > -1000.0f) ? 1.0f : 0.0f;
  row[10] = simd_all(lane != 9) ? 1.0f : 0.0f;
  row[11] = float(ulong(simd_ballot(lane % 2 == 0)));
  row[12] = float(simd_sum(int(lane)));
  row[13] = float(simdgroup);
  row[14] = simd_shuffle_xor(float2(v, -v), 1).y;
  row[15] = simd_is_first() ? 1.0f : 0.0f;
}

kernel void types(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  if (i > 0) return;
  float4 v = float4(x[0], x[1], x[2], x[3]);
  float2 pair = v.zw;
  v.xy = pair.yx;
  v += float4(pair, 0.0f, 1.0f) * 2.0f;
  out[0] = v.x;
  out[1] = v.y;
  out[2] = v.z;
  out[3] = v.w;
  out[4] = dot(v, v.wzyx);
  out[5] = float(half(x[4]));
  out[6] = float(bfloat(x[4]));
  out[7] = float(bfloat(x[5]));
  out[8] = as_type<float>(as_type<uint>(x[0]) ^ 0x80000000u);
  out[9] = select(1.0f, 2.0f, x[0] > 0.0f);
  out[10] = clamp(x[2], 0.0f, 1.0f);
  out[11] = fast::exp2(x[1]);
  out[12] = float(all(v == v)) + float(any(isnan(x[0]) ? bool2(true, true) : bool2(false, true)));
  out[13] = fma(x[0], x[1], x[2]);
  out[14] = float(ceil_div(long(x[6]), 8) + visible_pairs({i64_lowest(), 0}, 4, 4));
  out[15] = table[uint(x[7])];
  const half4 h = half4(v);
  out[16] = float(h.x) + float(h.w);
  out[17] = as_type<float4>(as_type<uint4>(v)).z;
  const float3 three = float3(v.xy, 5.0f);
  out[18] = three.z + max(three, float3(6.0f)).z;
  out[19] = numeric_limits<float>::lowest() == -FLT_MAX ? 1.0f : 0.0f;
}

// Where each thread of a 3-D grid believes to be; every group also reduces over its simdgroups.
kernel void positions(device uint* out [[buffer(0)]], uint3 at [[thread_position_in_grid]],
                      uint3 group [[threadgroup_position_in_grid]], uint3 grid [[threads_per_grid]],
                      uint3 groups [[threadgroups_per_grid]], ushort3 inside [[thread_position_in_threadgroup]],
                      ushort index [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup uint sums[4], total;
  const uint sum = simd_sum(at.x);
  if (lane == 0) sums[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (index == 0) {
    total = 0;
    for (uint s = 0; s < simdgroups; ++s) total += sums[s];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint place = (at.z * grid.y + at.y) * grid.x + at.x;
  out[place * 4] = total;
  out[place * 4 + 1] = (group.z * groups.y + group.y) * groups.x + group.x;
  out[place * 4 + 2] = uint(inside.y) * size.x + uint(inside.x);
  out[place * 4 + 3] = uint(index);
}

// Elements `stride` apart, to either side of `origin`.
kernel void far(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                constant long& origin [[buffer(2)]], constant long& stride [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
  const long at = origin + (long(i) - 16) * stride;
  out[at] = 2.0f * in[at];
}

// The smallest normal number, halved: zero when denormals are flushed.
kernel void denormal(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
  out[i] = in[i] * 0.5f;
}
