#pragma once

// The bench: executes a kernel launch, described as plain data, on host memory, and says what a GPU would have
// punished.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tilewise::metal_bench {

struct Size3 {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
};

enum class Access : std::uint8_t {
  input,    // read only
  output,   // poisoned before the launch; copied back
  in_out,   // holds data before and after
  scratch,  // poisoned, dropped
};

// Part of a sparse buffer that has contents; for outputs, the part that is copied back.
struct Piece {
  std::size_t offset = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

struct Buffer {
  int index = 0;          // [[buffer(index)]]
  std::string role;       // for messages
  void* data = nullptr;   // host memory; unused for scratch
  std::size_t bytes = 0;  // exact: one byte more is out of bounds
  Access access = Access::input;
  std::size_t offset = 0;  // the kernel's pointer starts here, as with setBuffer's offset
  // Not empty: the buffer is sparse, zero but for these pieces, and may have many GiB (for tests of 64-bit offsets).
  // `data` is unused. Bounds are checked as ever, races and uninitialised reads are not.
  std::vector<Piece> pieces{};
};

// setBytes: scalars packed as the kernel's constant struct expects them.
struct Scalars {
  int index = 0;
  std::vector<std::byte> bytes;
};

struct Launch {
  std::string source;                                                   // path of the .metal file
  std::string function;                                                 // kernel or host_name
  std::vector<std::pair<std::string, std::string>> constants;           // #defines: one compilation per set
  std::vector<std::pair<std::string, std::int64_t>> runtime_constants;  // #defines that share one compilation: such a
                                                                        // constant must not be an array length
  std::vector<Buffer> buffers;
  std::vector<Scalars> scalars;
  Size3 groups;                 // threadgroups in the grid
  Size3 threads;                // threads in a group
  Size3 grid_threads{0, 0, 0};  // dispatchThreads: total threads, the last groups may be partial. 0: whole groups
};

enum class Order : std::uint8_t { forward, reverse, random };  // of lanes, simdgroups and groups

struct Schedule {
  Order order = Order::forward;
  std::uint64_t seed = 0;
  bool flush_denormals = false;  // as Apple GPUs do in float32
};

enum class Mode : std::uint8_t {
  plain,    // guard pages and barrier checks only
  checked,  // every memory access is checked
  counted,  // work is counted; bounds are checked
};

struct Finding {
  std::string kind;     // subset, compile, bounds, race, uninitialised, divergence, limits, simd, undefined, argument
  std::string message;  // names threads, memory, and file:line of each access
};

// Sums over the launch; per thread unless said otherwise.
struct Counts {
  std::uint64_t device_bytes_read = 0, device_bytes_written = 0;
  std::uint64_t threadgroup_bytes_read = 0, threadgroup_bytes_written = 0;
  std::uint64_t constant_bytes_read = 0;
  std::uint64_t memory_instructions = 0;  // per simdgroup: loads and stores, neighbours merged up to 16 bytes a lane
  std::uint64_t matrix_products = 0;      // 8x8x8, per simdgroup
  std::uint64_t fma = 0, mul = 0, add = 0, compare = 0, divide = 0, exponential = 0, special = 0;  // outside products
  std::uint64_t shuffles = 0, reductions = 0, votes = 0;                                           // per simdgroup
  std::uint64_t simdgroup_barriers = 0;                                                            // per simdgroup
  std::uint64_t threadgroup_barriers = 0;                                                          // per group
  std::uint64_t longest_barriers = 0;  // threadgroup barriers of the group that has most
  std::uint64_t longest_slots = 0;     // issue slots of the longest simdgroup (executor.cpp says what one is)
  std::uint64_t simdgroups = 0;
};

struct Result {
  std::vector<Finding> findings;
  Counts counts;                      // of Mode::counted
  std::size_t threadgroup_bytes = 0;  // declared by the kernel
};

// The bench itself cannot go on (clang is missing, the cache cannot be written).
struct BenchError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Executes the launch. Never throws for what the kernel does; that is in `findings`. Not reentrant.
Result run(const Launch& launch, Schedule schedule, Mode mode);

// The lint passes alone: the MSL subset and the address spaces. No launch.
std::vector<Finding> lint(const Launch& launch);

constexpr std::size_t max_threadgroup_bytes = 32768;
constexpr std::uint32_t max_threads = 1024;

}  // namespace tilewise::metal_bench
