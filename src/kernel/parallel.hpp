#pragma once

// Parallel loops for kernels: the caller's ParallelFor or our own pool behind one function.

#include <cstdint>

#include "tilewise/types.hpp"

namespace tilewise {

inline constexpr int max_pool_threads = 512;

// The library's own pool, limited to `max_threads`; an explicit number is taken as it is, even above the processors
// that there are, up to max_pool_threads. 0 (or below): TILEWISE_NUM_THREADS, else the processors that affinity and
// cgroup quota leave. Both are read once, at the first such call. Safe from many threads at once, from inside another
// parallel region and after fork; sleeps when idle. The result is valid for as long as the program runs. Throws
// std::invalid_argument when TILEWISE_NUM_THREADS is no number from 1 to max_pool_threads (an empty one is none).
ParallelFor* default_pool(int max_threads);

// Calls body(index, worker) for every index in [0, tasks). Bodies do not throw.
template <class Body>
void parallel_for(ParallelFor* pool, std::int64_t tasks, const Body& body) {
  if (tasks <= 0) return;
  if (tasks == 1 || pool == nullptr || pool->workers <= 1) {
    for (std::int64_t index = 0; index < tasks; ++index) body(index, 0);
    return;
  }
  pool->run(pool->context, tasks, const_cast<void*>(static_cast<const void*>(&body)),
            [](void* arg, std::int64_t index, int worker) { (*static_cast<const Body*>(arg))(index, worker); });
}

}  // namespace tilewise
