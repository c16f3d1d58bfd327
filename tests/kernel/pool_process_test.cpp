// The pool across processes: fork, the environment, affinity, the end of the program.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

#include "kernel/parallel.hpp"
#include "kernel/processors.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

#if defined(__SANITIZE_THREAD__)
#define SKIP_WHERE_CHILDREN_CANNOT_HAVE_THREADS() \
  GTEST_SKIP() << "ThreadSanitizer's runtime ends a forked child that makes threads (dup thread with used id)"
#else
#define SKIP_WHERE_CHILDREN_CANNOT_HAVE_THREADS() static_cast<void>(0)
#endif

namespace tilewise {
namespace {

std::int64_t sum_below(std::int64_t tasks) {
  std::atomic<std::int64_t> sum{0};
  parallel_for(default_pool(4), tasks, [&](std::int64_t index, int) { sum.fetch_add(index); });
  return sum.load();
}

// True when `count` threads are at work at once.
bool all_meet(int count) {
  std::atomic<int> arrived{0};
  parallel_for(default_pool(count), count, [&](std::int64_t, int) {
    arrived.fetch_add(1);
    while (arrived.load() < count) std::this_thread::yield();
  });
  return arrived.load() == count;
}

int exit_code_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// What happens in the child is bounded: a hang ends it by SIGALRM, which is no exit.
template <class InChild>
int forked(const InChild& in_child) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::exit(in_child() ? 0 : 1);  // exit, not _exit: the child's static destructors run as well
  }
  return exit_code_of(child);
}

TEST(PoolFork, ChildMakesItsOwnThreads) {
  SKIP_WHERE_CHILDREN_CANNOT_HAVE_THREADS();
  ASSERT_TRUE(all_meet(4));
  EXPECT_EQ(forked([] { return all_meet(4) && sum_below(1000) == 499500; }), 0);
  EXPECT_EQ(sum_below(1000), 499500) << "the parent goes on";
  EXPECT_TRUE(all_meet(4));
}

TEST(PoolFork, ChildThatNeverUsesThePoolEnds) {
  ASSERT_TRUE(all_meet(3));
  EXPECT_EQ(forked([] { return true; }), 0);
}

TEST(PoolFork, Grandchild) {
  SKIP_WHERE_CHILDREN_CANNOT_HAVE_THREADS();
  ASSERT_TRUE(all_meet(2));
  EXPECT_EQ(forked([] { return all_meet(2) && forked([] { return all_meet(3); }) == 0 && all_meet(2); }), 0);
}

// The fork falls anywhere in the other threads' loops; the child must not wait for regions or helpers of theirs.
TEST(PoolFork, WhileOtherThreadsAreInLoops) {
  SKIP_WHERE_CHILDREN_CANNOT_HAVE_THREADS();
  // Every helper has begun to work, and so has every caller below: AddressSanitizer's allocator and list of threads are
  // not safe to fork while another thread starts.
  ASSERT_TRUE(all_meet(4));
  std::atomic<bool> stop{false};
  std::atomic<int> in_loops{0};
  std::array<std::thread, 3> callers;
  for (std::thread& caller : callers) {
    caller = std::thread([&] {
      sum_below(100);
      in_loops.fetch_add(1);
      while (!stop.load()) sum_below(100);
    });
  }
  while (in_loops.load() < 3) std::this_thread::yield();
  for (int repeat = 0; repeat < 20; ++repeat) {
    EXPECT_EQ(forked([] { return sum_below(1000) == 499500 && all_meet(3); }), 0);
  }
  stop.store(true);
  for (std::thread& caller : callers) caller.join();
}

struct Output {
  std::string text;
  int code;
};

Output run_probe(const std::string& environment, const std::string& arguments = "") {
  const std::string command =
      "env -u TILEWISE_NUM_THREADS " + environment + " timeout 60 '" POOL_PROBE "' " + arguments;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {"popen failed", -1};
  Output output{"", 0};
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr) output.text += buffer.data();
  const int status = pclose(pipe);
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

TEST(PoolEnvironment, NumThreadsDecides) {
  for (const char* count : {"1", "2", "5", "512"}) {
    const Output output = run_probe(std::string("TILEWISE_NUM_THREADS=") + count);
    EXPECT_EQ(output.text, std::string(count) + "\n");
    EXPECT_EQ(output.code, 0);
  }
}

TEST(PoolEnvironment, WithoutItTheProcessorsDecide) {
  const std::string expected = std::to_string(available_processors()) + "\n";
  EXPECT_EQ(run_probe("").text, expected);
  EXPECT_EQ(run_probe("TILEWISE_NUM_THREADS=").text, expected);
}

TEST(PoolEnvironment, BadValueIsAnError) {
  for (const char* value : {"0", "-2", "two", "4x", "' 4'", "513", "99999999999999999999", "2.5"}) {
    const Output output = run_probe(std::string("TILEWISE_NUM_THREADS=") + value);
    EXPECT_EQ(output.code, 1) << value;
    EXPECT_NE(output.text.find("TILEWISE_NUM_THREADS: '"), std::string::npos) << output.text;
    EXPECT_NE(output.text.find("from 1 to 512"), std::string::npos) << output.text;
  }
}

TEST(PoolEnd, ATaskMayEndTheProgram) { EXPECT_EQ(run_probe("", "exit").code, 7); }

#if defined(__linux__)
TEST(PoolEnvironment, AffinityIsHonoured) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int first = 0;
  while (CPU_ISSET(static_cast<unsigned>(first), &before) == 0) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(first), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(available_processors(), 1);
  EXPECT_EQ(run_probe("").text, "1\n") << "inherited by the child";
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}
#endif

}  // namespace
}  // namespace tilewise
