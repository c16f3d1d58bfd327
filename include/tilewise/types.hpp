#pragma once

// Tensor views, option structs and errors: everything that the functions of attention.hpp take and throw.
// Views do not own memory. Shapes and strides are in elements.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tilewise/export.hpp"

namespace tilewise {

/// Element types. `boolean` is one byte, non-zero means true; float16 is IEEE binary16.
enum class DType : std::uint8_t { float64, float32, float16, bfloat16, boolean, int32, int64 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::int64: return 8;
    case DType::float32:
    case DType::int32: return 4;
    case DType::float16:
    case DType::bfloat16: return 2;
    case DType::boolean: return 1;
  }
  return 0;
}

/// The dtype's name as written on the command line and in messages: "float32", "bool", ...
constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float64: return "float64";
    case DType::float32: return "float32";
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    case DType::boolean: return "bool";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
  }
  return "unknown";
}

enum class DeviceKind : std::uint8_t { cpu, cuda, metal };

/// Where a tensor's memory lives.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend constexpr bool operator==(Device, Device) = default;
};

inline constexpr int max_rank = 4;

/// A read-only strided view. A default-constructed view is absent: `present()` is false.
/// Strides may be 0 or negative; `data` is the address of element [0, 0, ...].
struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int rank = -1;
  std::array<std::int64_t, max_rank> shape{};    // elements; entries from `rank` on are unused
  std::array<std::int64_t, max_rank> strides{};  // elements
  Device device{};

  [[nodiscard]] constexpr bool present() const { return rank >= 0; }
};

/// A writable strided view; converts to ConstTensorView.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::float32;
  int rank = -1;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> strides{};
  Device device{};

  [[nodiscard]] constexpr bool present() const { return rank >= 0; }
  // NOLINTNEXTLINE(google-explicit-constructor): reading through a writable view is always allowed
  constexpr operator ConstTensorView() const { return {data, dtype, rank, shape, strides, device}; }
};

/// A row-major view of `data`. Throws std::invalid_argument when the rank exceeds `max_rank`.
TILEWISE_API TensorView contiguous_view(void* data, DType dtype, std::initializer_list<std::int64_t> shape);
TILEWISE_API ConstTensorView contiguous_view(const void* data, DType dtype, std::initializer_list<std::int64_t> shape);

/// Which corner of the score matrix the diagonal of a band passes through when Sq != Sk.
enum class Alignment : std::uint8_t {
  top_left,      ///< query i is at key position i
  bottom_right,  ///< the last query is at the last key: query i is at key position i + len_k - len_q
};

/// Key j is visible to query i iff i + delta - left <= j <= i + delta + right. An absent bound is unbounded, negative
/// bounds are ordinary, arithmetic saturates. delta comes from `alignment` or is given outright (context parallel).
/// A band needs its alignment (or delta) named unless Sq = Sk without lengths, offsets and pages.
struct Band {
  bool causal = false;  ///< right = 0; an error together with `right`
  std::optional<std::int64_t> left{};
  std::optional<std::int64_t> right{};
  std::optional<Alignment> alignment{};
  std::optional<std::int64_t> delta{};  ///< an error together with `alignment`

  [[nodiscard]] constexpr bool unbounded() const { return !causal && !left && !right; }
};

/// Element (b, h, i, j) of the normalised weights is kept iff its Philox4x32-10 word is >= ceil(p * 2^32), with
/// key = (low, high) word of `seed`, counter = (offset, b * Hq + h, i, j / 4), word j % 4; kept weights are scaled by
/// 1 / (1 - p), the LSE is not. p = 1 gives O = 0.
struct Dropout {
  double p = 0;
  std::uint64_t seed = 0;
  std::uint32_t offset = 0;
};

/// What is computed. Absent views and empty optionals mean "without".
struct AttentionOptions {
  std::optional<double> scale{};    ///< finite; default 1 / sqrt(D), 1 for D = 0; 0 and negative are valid
  std::optional<double> softcap{};  ///< c > 0: scores become c * tanh(s / c), before bias and masks
  Band band{};
  ConstTensorView mask{};          ///< bool, rank 1..4, right-aligned to [B, Hq, Sq, Sk], each dimension 1 or equal
  ConstTensorView bias{};          ///< float32 or Q's dtype, shaped like `mask`; added after softcap; only -inf masks
  ConstTensorView alibi_slopes{};  ///< float32, [Hq] or [B, Hq]: adds -slope * |i + len_k - len_q - j|
  ConstTensorView sinks{};         ///< float32, [Hq]: a logit that joins the denominator only; -inf is none
  ConstTensorView q_lengths{};     ///< int32 or int64, [B]: queries from q_lengths[b] on are padding
  ConstTensorView kv_lengths{};    ///< int32 or int64, [B]: keys from kv_lengths[b] on are never read
  ConstTensorView cu_q{};          ///< int32 or int64, [n + 1]: packed queries, q is [1, Hq, Tq, D]
  ConstTensorView cu_k{};          ///< int32 or int64, [n + 1]: packed keys, k is [1, Hkv, Tk, D]
  ConstTensorView
      block_table{};  ///< int32, [B, max_pages]: k, v are pools [num_pages, Hkv, page_size, .]; needs kv_lengths
  std::optional<Dropout> dropout{};
  bool batch_invariant = false;  ///< GPUs only: the same bits for an item in any batch; CPUs always keep this
};

/// Scratch memory for one call, 64-byte aligned. Null: the library allocates for the call.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// A caller's thread pool. `run` executes task(arg, index, worker) for every index in [0, tasks) and returns when all
/// are done. Concurrent tasks never share a worker id in [0, workers). Tasks do not throw.
struct ParallelFor {
  void* context = nullptr;
  int workers = 1;
  void (*run)(void* context, std::int64_t tasks, void* arg,
              void (*task)(void* arg, std::int64_t index, int worker)) = nullptr;
};

/// How it is computed; never changes what is computed, nor (on CPUs, for one kernel) its bits.
struct ExecutionOptions {
  void* stream = nullptr;               ///< GPU backends: the stream or queue to enqueue on
  Workspace workspace{};                ///< at least workspace_size() bytes, or null
  ParallelFor* parallel_for = nullptr;  ///< null: the library's own pool
  int max_threads = 0;                  ///< own pool: at most this many threads; 0: TILEWISE_NUM_THREADS, else all
  std::string_view kernel{};            ///< a kernel's name or a prefix of names; empty: TILEWISE_KERNEL, else chosen
};

/// The arguments are right, but nothing here can do it: no kernel supports them, or it is not built yet.
class TILEWISE_API Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A device failed: lost, out of memory, a launch that did not finish.
class TILEWISE_API DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tilewise
