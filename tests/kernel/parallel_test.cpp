#include "kernel/parallel.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cfenv>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

namespace tilewise {
namespace {

TEST(Pool, EveryIndexOnce) {
  for (const int workers : {1, 2, 3, 8}) {
    for (const std::int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(tasks));
      parallel_for(default_pool(workers), tasks, [&](std::int64_t index, int worker) {
        visits[static_cast<std::size_t>(index)].fetch_add(1, std::memory_order_relaxed);
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, workers);
      });
      for (const auto& count : visits) EXPECT_EQ(count.load(), 1) << workers << " workers, " << tasks << " tasks";
    }
  }
}

TEST(Pool, ResultsAreVisibleToTheCaller) {
  std::vector<std::int64_t> squares(5000);  // plain memory: a missing hand-over is a race for ThreadSanitizer
  for (int repeat = 0; repeat < 50; ++repeat) {
    parallel_for(default_pool(4), 5000,
                 [&](std::int64_t index, int) { squares[static_cast<std::size_t>(index)] = index * index + repeat; });
    for (std::int64_t i = 0; i < 5000; ++i) ASSERT_EQ(squares[static_cast<std::size_t>(i)], i * i + repeat);
  }
}

TEST(Pool, NoCallerAndNoPoolRunInOrder) {
  std::vector<std::int64_t> order;
  parallel_for(nullptr, 4, [&](std::int64_t index, int worker) {
    EXPECT_EQ(worker, 0);
    order.push_back(index);
  });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3}));
}

// As many tasks as workers that all wait for each other: only a pool with that many threads at work gets through.
void meet(ParallelFor* pool, int count) {
  std::atomic<int> arrived{0};
  std::vector<int> workers(static_cast<std::size_t>(count), -1);
  parallel_for(pool, count, [&](std::int64_t index, int worker) {
    workers[static_cast<std::size_t>(index)] = worker;
    arrived.fetch_add(1);
    while (arrived.load() < count) std::this_thread::yield();
  });
  EXPECT_EQ(std::set<int>(workers.begin(), workers.end()).size(), static_cast<std::size_t>(count))
      << "two tasks at once shared a worker id";
}

TEST(Pool, ExplicitThreadsAllWorkAtOnce) {
  for (const int count : {2, 3, 5, 9}) meet(default_pool(count), count);
}

// A worker id in use twice at once would let one task overwrite another's scratch.
TEST(Pool, ConcurrentTasksNeverShareAWorker) {
  constexpr int workers = 6;
  std::vector<std::atomic<int>> busy(workers);
  std::atomic<int> shared{0};
  for (int repeat = 0; repeat < 200; ++repeat) {
    parallel_for(default_pool(workers), 40, [&](std::int64_t, int worker) {
      auto& mine = busy[static_cast<std::size_t>(worker)];
      if (mine.fetch_add(1) != 0) shared.fetch_add(1);
      std::this_thread::yield();
      mine.fetch_sub(1);
    });
  }
  EXPECT_EQ(shared.load(), 0);
}

TEST(Pool, NestedLoopsRunOnTheirCaller) {
  std::atomic<int> count{0};
  std::atomic<int> elsewhere{0};
  parallel_for(default_pool(4), 16, [&](std::int64_t, int) {
    const auto self = std::this_thread::get_id();
    parallel_for(default_pool(4), 8, [&](std::int64_t, int worker) {
      if (std::this_thread::get_id() != self || worker != 0) elsewhere.fetch_add(1);
      parallel_for(default_pool(2), 3, [&](std::int64_t, int) { count.fetch_add(1); });
    });
  });
  EXPECT_EQ(count.load(), 16 * 8 * 3);
  EXPECT_EQ(elsewhere.load(), 0);
}

TEST(Pool, AfterANestedLoopTheCallerIsParallelAgain) {
  parallel_for(default_pool(2), 2,
               [](std::int64_t, int) { parallel_for(default_pool(2), 2, [](std::int64_t, int) {}); });
  meet(default_pool(2), 2);
}

// More callers than the pool has regions, all with plain memory of their own.
TEST(Pool, ManyCallersAtOnce) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 24; ++caller) {
    callers.emplace_back([&wrong, caller] {
      std::vector<std::int64_t> values(300);
      for (int repeat = 0; repeat < 60; ++repeat) {
        parallel_for(default_pool(2 + caller % 4), 300,
                     [&](std::int64_t index, int) { values[static_cast<std::size_t>(index)] = index + repeat; });
        for (std::int64_t i = 0; i < 300; ++i) {
          if (values[static_cast<std::size_t>(i)] != i + repeat) wrong.fetch_add(1);
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// Two callers whose loops each need a helper to get through: the pool's threads serve both.
TEST(Pool, CallersShareTheHelpers) {
  meet(default_pool(6), 6);  // five helpers exist from here on
  std::thread first([] { meet(default_pool(3), 3); });
  std::thread second([] { meet(default_pool(3), 3); });
  first.join();
  second.join();
}

TEST(Pool, HelpersIgnoreTheCreatorsRounding) {
  std::atomic<int> strange{0};
  std::thread creator([&] {
    std::fesetround(FE_UPWARD);
    std::atomic<int> arrived{0};
    parallel_for(default_pool(12), 12, [&](std::int64_t, int worker) {
      if (worker != 0 && std::fegetround() != FE_TONEAREST) strange.fetch_add(1);
      arrived.fetch_add(1);
      while (arrived.load() < 12) std::this_thread::yield();
    });
    EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the caller's mode is its own";
  });
  creator.join();
  EXPECT_EQ(strange.load(), 0);
}

TEST(Pool, HelpersTakeNoSignals) {
  std::atomic<int> open{0};
  std::atomic<int> arrived{0};
  parallel_for(default_pool(4), 4, [&](std::int64_t, int worker) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    if (worker != 0 && sigismember(&blocked, SIGTERM) == 0) open.fetch_add(1);
    arrived.fetch_add(1);
    while (arrived.load() < 4) std::this_thread::yield();
  });
  EXPECT_EQ(open.load(), 0);
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 0) << "the caller's mask is restored";
}

TEST(Pool, LimitsAreKept) {
  EXPECT_EQ(default_pool(1)->workers, 1);
  EXPECT_EQ(default_pool(7)->workers, 7);
  EXPECT_EQ(default_pool(1 << 30)->workers, max_pool_threads);
  EXPECT_GE(default_pool(0)->workers, 1);
  EXPECT_EQ(default_pool(-1), default_pool(0));
  EXPECT_EQ(default_pool(5), default_pool(5)) << "valid for as long as the program runs";
}

}  // namespace
}  // namespace tilewise
