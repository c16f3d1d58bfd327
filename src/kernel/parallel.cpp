// The library's thread pool.
//
// A Region is one running parallel loop. Its caller takes a free one, opens its gate, works, closes the gate and waits
// until the helpers inside have left. Helpers look for an open gate, enter, take task after task from a counter, and
// leave. They spin for some microseconds when there is nothing to do, then sleep until `epoch` changes. What is changed
// before a notify is changed sequentially consistently, so that it cannot pass the look for sleepers inside notify.
//
// Nothing here locks, allocates or is ever destroyed: the pool works during static initialisation and destruction, and
// a forked child, which has none of its parent's threads, only writes the initial state over it.
#include "kernel/parallel.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "kernel/processors.hpp"

namespace tilewise {
namespace {

using Task = void (*)(void* arg, std::int64_t index, int worker);

constexpr std::chrono::microseconds spin_time{30};  // about what waking a sleeping thread costs
constexpr int max_regions = 16;                     // more callers than this at once work on their own threads only
constexpr std::size_t cache_line = 64;

// A gate holds two counts: the helpers inside, and how many more are wanted. Its values say everything about a region's
// life: idle 0; open `wanted > 0`; closing `wanted == 0, inside > 0`.
constexpr std::uint32_t one_inside = 1;
constexpr std::uint32_t one_wanted = 1U << 16;
constexpr std::uint32_t inside_mask = one_wanted - 1;
constexpr int wanted(std::uint32_t gate) { return static_cast<int>(gate >> 16); }
constexpr int inside(std::uint32_t gate) { return static_cast<int>(gate & inside_mask); }

struct alignas(cache_line) Region {
  std::atomic<bool> taken{false};  // by the thread that called
  // Not at the start of a cache line: libstdc++ counts sleepers by address modulo 64, and `epoch` has those of 0.
  std::atomic<std::uint32_t> gate{0};
  // What to do: written while the gate is 0, read by helpers that have entered.
  Task task = nullptr;
  void* arg = nullptr;
  std::int64_t tasks = 0;
  alignas(cache_line) std::atomic<std::int64_t> next{0};
};

struct Team {
  std::array<Region, max_regions> regions{};
  alignas(cache_line) std::atomic<std::uint32_t> epoch{0};  // counts opened gates; what idle helpers wait for
  std::atomic<bool> stopping{false};
  std::atomic<bool> growing{false};  // held while threads are created, and from the end of the program on
  std::atomic<bool> exhausted{false};
  std::atomic<int> helpers{0};
  std::array<pthread_t, max_pool_threads> threads{};
};

constinit Team team;
constinit std::atomic<int> processors{0};       // 0: not counted yet
constinit std::atomic<int> default_threads{0};  // 0: not decided yet
thread_local bool in_region = false;

// Racing first calls compute the same value; a lock could be left held in a forked child.
int processor_count() {
  int count = processors.load(std::memory_order_relaxed);
  if (count == 0) {
    count = available_processors();
    processors.store(count, std::memory_order_relaxed);
  }
  return count;
}

int default_thread_count() {
  int count = default_threads.load(std::memory_order_relaxed);
  if (count == 0) {
    count = threads_from_environment(std::getenv("TILEWISE_NUM_THREADS"), max_pool_threads);
    if (count == 0) count = std::min(processor_count(), max_pool_threads);
    default_threads.store(count, std::memory_order_relaxed);
  }
  return count;
}

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` does nothing on most cores; isb takes some 10 ns
#endif
}

// Waits for `done` for spin_time, unless there are more threads than processors: then spinning only takes the processor
// from the thread that is waited for.
template <class Done>
bool spin_until(const Done& done) {
  if (done()) return true;
  if (team.helpers.load(std::memory_order_relaxed) >= processor_count()) return false;
  const auto deadline = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 16; ++i) {
      pause_briefly();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

void do_tasks(Region& region, int worker) {
  for (std::int64_t index = region.next.fetch_add(1, std::memory_order_relaxed); index < region.tasks;
       index = region.next.fetch_add(1, std::memory_order_relaxed)) {
    region.task(region.arg, index, worker);
    if (worker != 0 && team.stopping.load(std::memory_order_relaxed)) return;  // the caller does the rest
  }
}

bool any_gate_open() {
  return std::any_of(team.regions.begin(), team.regions.end(),
                     [](const Region& region) { return wanted(region.gate.load(std::memory_order_relaxed)) > 0; });
}

// Enters through an open gate; the worker id is the number of helpers that were still wanted, so that no two helpers of
// a region share one and 0 stays the caller's. Returns 0 if the gate is closed.
int enter(Region& region) {
  std::uint32_t gate = region.gate.load(std::memory_order_relaxed);
  while (wanted(gate) > 0) {
    if (region.gate.compare_exchange_weak(gate, gate - one_wanted + one_inside, std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
      return wanted(gate);
    }
  }
  return 0;
}

void leave(Region& region) {
  const std::uint32_t before = region.gate.fetch_sub(one_inside, std::memory_order_seq_cst);
  if (inside(before) == 1 && wanted(before) == 0) region.gate.notify_one();  // its caller may sleep
}

void help() {
  for (Region& region : team.regions) {
    if (const int worker = enter(region); worker != 0) {
      // A caller wakes one helper, and every helper the next: waking is slow, and the caller has work to do.
      if (any_gate_open()) team.epoch.notify_one();
      do_tasks(region, worker);
      leave(region);
    }
  }
}

void* helper_main(void*) {
  // A new thread inherits its creator's rounding and flush modes; results must not depend on who created it.
  std::fesetenv(FE_DFL_ENV);
  in_region = true;
  while (!team.stopping.load(std::memory_order_acquire)) {
    const std::uint32_t seen = team.epoch.load(std::memory_order_acquire);
    help();
    const auto changed = [seen] { return team.epoch.load(std::memory_order_relaxed) != seen; };
    if (!spin_until(changed)) team.epoch.wait(seen, std::memory_order_acquire);
  }
  return nullptr;
}

// Creates threads until `count` helpers exist. Where the system refuses one, the pool stays as small as it is.
void grow(int count) {
  if (team.helpers.load(std::memory_order_acquire) >= count || team.exhausted.load(std::memory_order_relaxed) ||
      team.growing.exchange(true, std::memory_order_acquire)) {
    return;
  }
  processor_count();  // here, not first in a helper: a helper never allocates, so a fork never finds it doing so
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals are for the program's threads
  int helpers = team.helpers.load(std::memory_order_relaxed);
  for (; helpers < count; ++helpers) {
    if (pthread_create(&team.threads[static_cast<std::size_t>(helpers)], nullptr, helper_main, nullptr) != 0) {
      team.exhausted.store(true, std::memory_order_relaxed);
      break;
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  team.helpers.store(helpers, std::memory_order_release);
  team.growing.store(false, std::memory_order_release);
}

Region* take_region() {
  for (Region& region : team.regions) {
    if (!region.taken.load(std::memory_order_relaxed) && !region.taken.exchange(true, std::memory_order_acquire)) {
      return &region;
    }
  }
  return nullptr;
}

void run_alone(std::int64_t tasks, void* arg, Task task) {
  for (std::int64_t index = 0; index < tasks; ++index) task(arg, index, 0);
}

void run(void* context, std::int64_t tasks, void* arg, Task task) {
  const int workers = static_cast<int>(std::min<std::int64_t>(*static_cast<const int*>(context), tasks));
  Region* region = in_region || workers <= 1 ? nullptr : take_region();
  if (region == nullptr) {
    run_alone(tasks, arg, task);
    return;
  }
  grow(workers - 1);
  region->task = task;
  region->arg = arg;
  region->tasks = tasks;
  region->next.store(0, std::memory_order_relaxed);
  region->gate.store(static_cast<std::uint32_t>(workers - 1) * one_wanted, std::memory_order_release);
  team.epoch.fetch_add(1, std::memory_order_seq_cst);
  team.epoch.notify_one();

  in_region = true;
  do_tasks(*region, 0);
  in_region = false;

  std::uint32_t gate = region->gate.fetch_and(inside_mask, std::memory_order_acq_rel) & inside_mask;
  const auto empty = [&] {
    gate = region->gate.load(std::memory_order_acquire);
    return gate == 0;
  };
  if (!spin_until(empty)) {
    while (!empty()) region->gate.wait(gate, std::memory_order_acquire);
  }
  region->taken.store(false, std::memory_order_release);
}

// Runs in a forked child, which has one thread: every region and helper of the parent is gone.
void restart_in_child() {
  for (Region& region : team.regions) {
    region.gate.store(0, std::memory_order_relaxed);
    region.taken.store(false, std::memory_order_relaxed);
  }
  team.helpers.store(0, std::memory_order_relaxed);
  team.exhausted.store(false, std::memory_order_relaxed);
  team.growing.store(false, std::memory_order_relaxed);
}

// Registers with fork when the library is loaded; ends the threads when it is unloaded or the program ends. Calls that
// come later, from destructors of other objects, run on their own threads.
struct Lifetime {
  Lifetime() { pthread_atfork(nullptr, nullptr, restart_in_child); }
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;
  ~Lifetime() {
    while (team.growing.exchange(true, std::memory_order_acquire)) pause_briefly();
    team.stopping.store(true, std::memory_order_release);
    team.epoch.fetch_add(1, std::memory_order_seq_cst);
    team.epoch.notify_all();
    const int helpers = team.helpers.load(std::memory_order_acquire);
    for (int i = 0; i < helpers; ++i) {
      const pthread_t thread = team.threads[static_cast<std::size_t>(i)];
      // A task that calls exit() brings a helper here.
      if (pthread_equal(thread, pthread_self()) == 0) pthread_join(thread, nullptr);
    }
  }
};
const Lifetime lifetime;

// counts[n] == n: what a ParallelFor's context points to.
constinit std::array<int, max_pool_threads + 1> counts = [] {
  std::array<int, max_pool_threads + 1> result{};
  for (int n = 0; n <= max_pool_threads; ++n) result[static_cast<std::size_t>(n)] = n;
  return result;
}();

constinit std::array<ParallelFor, max_pool_threads + 1> pools = [] {
  std::array<ParallelFor, max_pool_threads + 1> result{};
  for (int n = 0; n <= max_pool_threads; ++n) {
    result[static_cast<std::size_t>(n)] = {&counts[static_cast<std::size_t>(n)], n, run};
  }
  return result;
}();

}  // namespace

ParallelFor* default_pool(int max_threads) {
  const int threads = max_threads > 0 ? std::min(max_threads, max_pool_threads) : default_thread_count();
  return &pools[static_cast<std::size_t>(threads)];
}

}  // namespace tilewise
