#include "cpu/isa.hpp"

#include "kernel/kernel.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tilewise::cpu {
namespace {

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool has(unsigned word, int bit) { return ((word >> bit) & 1u) != 0; }

// The register state that the operating system saves (XCR0): bit 1 SSE, 2 AVX, 5-7 AVX-512, 17-18 AMX.
std::uint64_t saved_state(const Registers& leaf1) {
  if (!has(leaf1.ecx, 27)) return 0;  // OSXSAVE
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

// Linux hands out the AMX tile state on request, once per process; some hypervisors advertise AMX without any palette.
bool amx_permitted() {
#if defined(__linux__)
  if (cpuid(0x1d, 0).eax == 0) return false;
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

std::uint32_t detect() {
  const Registers leaf1 = cpuid(1, 0);
  const Registers leaf7 = cpuid(7, 0);
  const Registers extended = cpuid(0x80000001u, 0);
  const std::uint64_t state = saved_state(leaf1);
  const bool avx_state = (state & 0x6) == 0x6;
  const bool avx512_state = (state & 0xe6) == 0xe6;
  const bool amx_state = (state & 0x60000) == 0x60000;

  std::uint32_t features = 0;
  const bool sse4 = has(leaf1.ecx, 0) && has(leaf1.ecx, 9) && has(leaf1.ecx, 19) && has(leaf1.ecx, 20) &&
                    has(leaf1.ecx, 1);  // SSE3, SSSE3, SSE4.1, SSE4.2, PCLMULQDQ
  if (sse4) features |= isa::sse4;
  const bool avx2 = sse4 && avx_state && has(leaf1.ecx, 28) && has(leaf1.ecx, 12) && has(leaf1.ecx, 29) &&
                    has(leaf7.ebx, 5) && has(leaf7.ebx, 3) && has(leaf7.ebx, 8) &&
                    has(extended.ecx, 5);  // AVX, FMA, F16C, AVX2, BMI1, BMI2, LZCNT
  if (avx2) features |= isa::avx2;
  const bool avx512 = avx2 && avx512_state && has(leaf7.ebx, 16) && has(leaf7.ebx, 17) && has(leaf7.ebx, 28) &&
                      has(leaf7.ebx, 30) && has(leaf7.ebx, 31);  // F, DQ, CD, BW, VL
  if (avx512) features |= isa::avx512;
  if (avx512 && amx_state && has(leaf7.edx, 22) && has(leaf7.edx, 24) && amx_permitted()) features |= isa::amx_bf16;
  return features;
}

#elif defined(__aarch64__)

std::uint32_t detect() { return isa::neon; }  // part of the AArch64 base

#else

std::uint32_t detect() { return 0; }

#endif

}  // namespace

std::uint32_t cpu_features() {
  static const std::uint32_t features = detect();
  return features;
}

}  // namespace tilewise::cpu
