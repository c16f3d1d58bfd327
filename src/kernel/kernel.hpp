#pragma once

// What a kernel is, for every backend and pass. A Problem holds everything about a call but addresses, so that
// choosing, explaining and planning need no pointers; Buffers holds the addresses alone.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/band.h"
#include "core/index_map.h"
#include "tilewise/types.hpp"

namespace tilewise {

enum class Pass : std::uint8_t { forward, backward };

// Instruction sets of a CPU, found by src/cpu/isa.hpp. Bits, since machines have several.
namespace isa {
inline constexpr std::uint32_t sse4 = 1;      // x86-64 with SSE4.2
inline constexpr std::uint32_t avx2 = 2;      // AVX2 and FMA
inline constexpr std::uint32_t avx512 = 4;    // AVX-512 F, BW, CD, DQ, VL
inline constexpr std::uint32_t amx_bf16 = 8;  // AMX tiles with bfloat16, and the permission to use them
inline constexpr std::uint32_t neon = 16;     // Arm AdvSIMD, AArch64
}  // namespace isa

struct Machine {
  DeviceKind kind = DeviceKind::cpu;
  std::uint32_t features = 0;  // isa:: bits for CPUs; the GPU family for others
};

// A tensor without its address. Absent: rank -1. `strides` of dimensions of size 1 are kept as given.
struct TensorSpec {
  DType dtype = DType::float32;
  int rank = -1;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> strides{};
  std::int64_t alignment = 1;  // bytes: largest power of two, up to 16, that divides the address

  [[nodiscard]] bool present() const { return rank >= 0; }
};

struct Problem {
  Pass pass = Pass::forward;
  Machine machine{};

  std::int64_t batch = 0;        // items, or packed sequences
  std::int64_t q_heads = 0;      // Hq
  std::int64_t kv_heads = 0;     // Hkv
  std::int64_t q_len = 0;        // Sq: rows of a slot; packed: Tq
  std::int64_t kv_len = 0;       // Sk: rows of a slot; packed: Tk; paged: max_pages * page_size
  std::int64_t head_dim = 0;     // D
  std::int64_t v_dim = 0;        // Dv
  DType dtype = DType::float32;  // of q, k, v, o

  TensorSpec q, k, v, o, lse;
  TensorSpec mask, bias;    // always rank 4 here: [B, Hq, Sq, Sk], broadcast dimensions with stride 0
  TensorSpec alibi_slopes;  // always rank 2 here: [B, Hq]
  TensorSpec sinks, q_lengths, kv_lengths, cu_q, cu_k, block_table;

  double scale = 1;
  double softcap = 0;  // 0: none
  bool has_left = false;
  bool has_right = false;
  std::int64_t left = 0;
  std::int64_t right = 0;
  core::Corner corner = core::corner_top_left;
  std::int64_t delta = 0;  // for corner_explicit

  bool has_dropout = false;
  double dropout_p = 0;
  std::uint64_t dropout_seed = 0;
  std::uint32_t dropout_offset = 0;
  bool batch_invariant = false;

  [[nodiscard]] bool packed_queries() const { return cu_q.present(); }
  [[nodiscard]] bool packed_keys() const { return cu_k.present(); }
  [[nodiscard]] bool paged() const { return block_table.present(); }
  [[nodiscard]] std::int64_t page_size() const { return k.shape[2]; }
  [[nodiscard]] bool banded() const { return has_left || has_right; }
};

// Addresses, in the order of Problem's specs; null where absent.
struct Buffers {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  void* lse = nullptr;
  const void* mask = nullptr;
  const void* bias = nullptr;
  const void* alibi_slopes = nullptr;
  const void* sinks = nullptr;
  const void* q_lengths = nullptr;
  const void* kv_lengths = nullptr;
  const void* cu_q = nullptr;
  const void* cu_k = nullptr;
  const void* block_table = nullptr;
};

// How a call runs. `parallel` is never null inside a kernel's run.
struct Execution {
  void* stream = nullptr;
  Workspace workspace{};
  ParallelFor* parallel = nullptr;
};

// Yes, or the reason in words: "head_dim 300 is above 256". Converts to true for yes.
struct Verdict {
  std::string reason{};
  explicit operator bool() const { return reason.empty(); }
};
inline Verdict yes() { return {}; }
inline Verdict no(std::string reason) { return {std::move(reason)}; }

struct TileShape {
  std::int64_t queries = 1;
  std::int64_t keys = 1;
};

struct Kernel {
  const char* name;  // backend.isa.what[.variant]
  Verdict (*supports)(const Problem&);
  int (*rank)(const Problem&);        // higher is preferred; below 0: only when forced (the ladder)
  TileShape (*tile)(const Problem&);  // for explain: the grain in which work is skipped
  std::size_t (*workspace)(const Problem&, const Execution&);
  void (*run)(const Problem&, const Buffers&, Execution&);
};

// Each backend's list, best last or first as it likes: rank decides. A backend that is not built returns an empty list.
std::span<const Kernel> cpu_kernels();
std::span<const Kernel> cuda_kernels();
std::span<const Kernel> metal_kernels();

}  // namespace tilewise
