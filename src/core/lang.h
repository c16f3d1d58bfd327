#pragma once

// The dialect of core/: C++14 that is also CUDA C++ and Metal Shading Language. No standard headers, no pointers, no
// references, no lambdas, no double unless a target instantiates it. This is the only file that knows the compilers.

#if defined(__METAL_VERSION__) && !defined(TW_METAL_ON_CPU)
#define TW_FN inline
typedef long tw_i64;
typedef int tw_i32;
typedef uint tw_u32;
typedef ulong tw_u64;
#elif defined(__CUDACC__)
#define TW_FN __host__ __device__ __forceinline__
typedef __INT64_TYPE__ tw_i64;
typedef __INT32_TYPE__ tw_i32;
typedef __UINT32_TYPE__ tw_u32;
typedef __UINT64_TYPE__ tw_u64;
#else
#define TW_FN inline __attribute__((always_inline))
typedef __INT64_TYPE__ tw_i64;
typedef __INT32_TYPE__ tw_i32;
typedef __UINT32_TYPE__ tw_u32;
typedef __UINT64_TYPE__ tw_u64;
#endif

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "core/ relies on infinities and NaN: compile without -ffast-math and -ffinite-math-only"
#endif
