// Executes one instruction of the set that is named, and nothing newer before it: the proof that the emulator ends a
// program that uses what its processor lacks. Assembly, because the compiler must not use these sets itself.

#include <cstdio>
#include <string_view>

int main(int count, char** arguments) {
  const std::string_view set = count == 2 ? arguments[1] : "";
  if (set == "sse4") {
    asm volatile("pcmpgtq %%xmm0, %%xmm0" ::: "xmm0");
  } else if (set == "avx2") {
    asm volatile("vpaddd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
  } else if (set == "fma") {
    asm volatile("vfmadd231ps %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
  } else if (set == "avx512") {
    asm volatile("vpaddd %%zmm0, %%zmm0, %%zmm0" ::: "xmm0");
  } else {
    std::fprintf(stderr, "usage: instruction_probe sse4|avx2|fma|avx512\n");
    return 2;
  }
  std::puts("executed");
  return 0;
}
