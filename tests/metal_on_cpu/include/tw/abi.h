// The seam between a translated kernel (a shared object) and the runner that executes it: plain C.
#ifndef TW_ABI_H
#define TW_ABI_H

#define TW_EXPORT __attribute__((visibility("default")))

// Where a lane stands; filled by the runner, passed to the kernel's entry by value fields in the generated glue.
struct TwThread {
  unsigned position_in_grid[3];
  unsigned position_in_group[3];
  unsigned group_in_grid[3];
  unsigned threads_per_group[3];  // of this group: smaller in partial groups
  unsigned dispatch_threads_per_group[3];
  unsigned groups_per_grid[3];
  unsigned threads_per_grid[3];
  unsigned index_in_group;
  unsigned lane;       // index in simdgroup
  unsigned simdgroup;  // index in group
  unsigned simdgroups_per_group;
};

enum TwSpace { tw_device, tw_constant };

struct TwArgument {
  int index;  // [[buffer(index)]]
  int space;
  int is_const;
  const char* name;
};

struct TwEntry {
  const char* name;
  void (*run)(const TwThread* thread, void* const* buffers);
  const TwArgument* arguments;
  int argument_count;
};

// Scalar operations of all lanes so far; the runner reads differences. Lives in the shared object, so that counting is
// one instruction.
struct TwCounts {
  unsigned long long fma, mul, add, compare, divide, exponential, special;
};

enum TwCollective {
  tw_op_shuffle,
  tw_op_reduce,
  tw_op_vote,
  tw_op_matrix_product,
  tw_op_matrix_memory,
  tw_op_matrix_memory_transposed,
  tw_op_simdgroup_barrier
};

// The 32 lanes of a simdgroup at one collective operation: posted[i] is lane i's argument block, null where absent.
typedef void (*TwCombine)(void* const* posted);

extern "C" {
// Blocks the lane until its whole simdgroup has come here, then `combine` runs once for all of them.
__attribute__((convergent)) void tw_collective(int kind, void* posted, TwCombine combine);
__attribute__((convergent)) void tw_threadgroup_barrier(unsigned flags);
__attribute__((convergent)) void tw_simdgroup_barrier(unsigned flags);
// The storage of a threadgroup array; the first lane that asks reserves it.
void* tw_threadgroup_array(int id, unsigned long bytes, const char* name);
// A memory access of a matrix operation on behalf of the whole simdgroup; false: it must not happen.
bool tw_matrix_access(const void* address, unsigned long bytes, bool write);
unsigned tw_lane_index();
void tw_report(const char* kind, const char* message);
}

#endif
