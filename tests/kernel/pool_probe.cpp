// What a fresh process sees of the pool: prints the default number of threads, or the error, and checks one loop.
// "static": runs loops from constructors and destructors of static objects as well. "exit": a task ends the program.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "kernel/parallel.hpp"

namespace {

bool loop_works() {
  std::atomic<int> sum{0};
  tilewise::parallel_for(tilewise::default_pool(3), 100, [&](std::int64_t index, int) {
    sum.fetch_add(static_cast<int>(index), std::memory_order_relaxed);
  });
  return sum.load() == 4950;
}

// Constructed before and destroyed after the pool's own static object, if the linker orders the files so; in any case
// one of the two outlives the other.
struct AtBothEnds {
  AtBothEnds() { check(); }
  AtBothEnds(const AtBothEnds&) = delete;
  AtBothEnds& operator=(const AtBothEnds&) = delete;
  ~AtBothEnds() { check(); }
  static void check() {
    if (!loop_works()) std::abort();
  }
};
const AtBothEnds at_both_ends;

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "exit") {
    tilewise::parallel_for(tilewise::default_pool(4), 64, [](std::int64_t index, int worker) {
      static std::atomic<bool> ended{false};
      if (worker != 0 && !ended.exchange(true)) std::exit(7);
      while (index == 0 && worker == 0 && !ended.load()) {  // the caller stays until a helper has come
      }
    });
    for (;;) {  // the helper ends the program
    }
  }
  try {
    std::printf("%d\n", tilewise::default_pool(0)->workers);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return loop_works() ? 0 : 3;
}
