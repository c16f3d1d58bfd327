// What a kernel's shared object calls: the operations of tw/abi.h, clang's access callbacks (-fsanitize=thread without
// its runtime) and the handlers of -fsanitize=undefined.

#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>

#include <sys/ucontext.h>

#include "executor.hpp"

namespace tilewise::metal_bench {
Executor* running_executor();
}

using tilewise::metal_bench::Executor;
using tilewise::metal_bench::running_executor;

#define RETURN_SITE reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

namespace {

std::uintptr_t address_of(const volatile void* p) { return reinterpret_cast<std::uintptr_t>(p); }

void on_access(const volatile void* address, std::size_t size, bool write, std::uintptr_t site) {
  if (Executor* const executor = running_executor()) executor->access(address_of(address), size, write, site);
}

struct UbsanLocation {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
};

void on_undefined(const void* data, const char* what) {
  const auto* const location = static_cast<const UbsanLocation*>(data);
  const char* const slash = std::strrchr(location->file, '/');
  if (Executor* const executor = running_executor()) {
    executor->undefined_behaviour(std::string(what) + " (" + (slash != nullptr ? slash + 1 : location->file) + ":" +
                                  std::to_string(location->line) + ")");
  }
}

}  // namespace

extern "C" {

void tw_collective(int kind, void* posted, TwCombine combine) {
  running_executor()->collective(kind, posted, combine, RETURN_SITE);
}
void tw_threadgroup_barrier(unsigned flags) { running_executor()->threadgroup_barrier(flags, RETURN_SITE); }
void tw_simdgroup_barrier(unsigned flags) { running_executor()->simdgroup_barrier(flags, RETURN_SITE); }
void* tw_threadgroup_array(int id, unsigned long bytes, const char* name) {
  return running_executor()->threadgroup_array(id, bytes, name);
}
bool tw_matrix_access(const void* address, unsigned long bytes, bool write) {
  return running_executor()->matrix_access(address_of(address), bytes, write);
}
unsigned tw_lane_index() { return running_executor()->lane_index(); }
void tw_report(const char* kind, const char* message) { running_executor()->report(kind, message); }

void __tsan_init() {}
#define TW_HOOK(size)                                                                   \
  void __tsan_read##size(void* p) { on_access(p, size, false, RETURN_SITE); }           \
  void __tsan_write##size(void* p) { on_access(p, size, true, RETURN_SITE); }           \
  void __tsan_unaligned_read##size(void* p) { on_access(p, size, false, RETURN_SITE); } \
  void __tsan_unaligned_write##size(void* p) { on_access(p, size, true, RETURN_SITE); } \
  void __tsan_volatile_read##size(void* p) { on_access(p, size, false, RETURN_SITE); }  \
  void __tsan_volatile_write##size(void* p) { on_access(p, size, true, RETURN_SITE); }  \
  void __tsan_read_write##size(void* p) {                                               \
    on_access(p, size, false, RETURN_SITE);                                             \
    on_access(p, size, true, RETURN_SITE);                                              \
  }                                                                                     \
  void __tsan_unaligned_read_write##size(void* p) {                                     \
    on_access(p, size, false, RETURN_SITE);                                             \
    on_access(p, size, true, RETURN_SITE);                                              \
  }
TW_HOOK(1)
TW_HOOK(2)
TW_HOOK(4)
TW_HOOK(8)
TW_HOOK(16)
#undef TW_HOOK

void* __tsan_memcpy(void* to, const void* from, std::size_t n) {
  on_access(from, n, false, RETURN_SITE);
  on_access(to, n, true, RETURN_SITE);
  return std::memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, std::size_t n) {
  on_access(from, n, false, RETURN_SITE);
  on_access(to, n, true, RETURN_SITE);
  return std::memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, std::size_t n) {
  on_access(to, n, true, RETURN_SITE);
  return std::memset(to, value, n);
}

#define TW_UBSAN(name, what) \
  void __ubsan_handle_##name(void* data, void*, void*) { on_undefined(data, what); }
TW_UBSAN(out_of_bounds, "index out of bounds of an array")
TW_UBSAN(type_mismatch_v1, "misaligned address")
TW_UBSAN(shift_out_of_bounds, "shift by too many bits")
TW_UBSAN(divrem_overflow, "integer division by zero or overflow")
TW_UBSAN(add_overflow, "signed integer overflow")
TW_UBSAN(sub_overflow, "signed integer overflow")
TW_UBSAN(mul_overflow, "signed integer overflow")
TW_UBSAN(negate_overflow, "signed integer overflow")
TW_UBSAN(float_cast_overflow, "float out of the integer's range")
TW_UBSAN(load_invalid_value, "a bool that is neither 0 nor 1")
#undef TW_UBSAN

}  // extern "C"

namespace tilewise::metal_bench {
namespace {

std::uintptr_t fault_address = 0;

[[noreturn]] void after_fault() { running_executor()->memory_fault(fault_address); }

// Continues on the faulting lane's own stack, but in after_fault, which leaves the lane.
void on_fault(int signal, siginfo_t* info, void* context) {
  auto* const machine = static_cast<ucontext_t*>(context);
  if (running_executor() == nullptr || !running_executor()->in_lane()) {
    std::signal(signal, SIG_DFL);
    return;
  }
  fault_address = address_of(info->si_addr);
  auto& registers = machine->uc_mcontext.gregs;
  registers[REG_RSP] = static_cast<greg_t>(running_executor()->fault_stack());
  registers[REG_RIP] = static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(&after_fault));
}

}  // namespace

void install_fault_handler() {
  static char stack[65536];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace tilewise::metal_bench
