#pragma once

// Runs the threadgroups of one launch, one after another; inside a group every thread is a fiber. A fiber runs until it
// reaches a barrier or a simdgroup operation; the schedule decides who goes first.

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench.hpp"
#include "fiber.hpp"
#include "memory.hpp"
#include "module.hpp"

namespace tilewise::metal_bench {

constexpr std::uint32_t simd_width = 32;

class Executor {
 public:
  Executor(const Launch& launch, Schedule schedule, Mode mode, const Module& module, const TwEntry& entry,
           std::vector<Region>& device, std::vector<void*> arguments);

  void run();
  [[nodiscard]] std::vector<Finding> findings() const;
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] std::size_t threadgroup_bytes() const { return threadgroup_.declared_bytes(); }

  // Called from the kernel, on a lane's stack.
  void collective(int kind, void* posted, TwCombine combine, std::uintptr_t site);
  void threadgroup_barrier(unsigned flags, std::uintptr_t site);
  void simdgroup_barrier(unsigned flags, std::uintptr_t site);
  void* threadgroup_array(int id, std::size_t bytes, const char* name);
  void access(std::uintptr_t address, std::size_t size, bool write, std::uintptr_t site);
  bool matrix_access(std::uintptr_t address, std::size_t size, bool write);
  [[nodiscard]] unsigned lane_index() const;
  void report(const char* kind, const std::string& message);
  void undefined_behaviour(const std::string& message);
  [[noreturn]] void memory_fault(std::uintptr_t address);
  [[nodiscard]] bool in_lane() const { return running_ != nullptr && !in_combine_; }
  [[nodiscard]] std::uintptr_t fault_stack() const;  // where a lane that faulted can still run a function

 private:
  enum class State : std::uint8_t { absent, ready, at_collective, at_barrier, finished };
  struct Lane {
    State state = State::absent;
    int kind = 0;
    unsigned flags = 0;
    void* stack = nullptr;
    void* posted = nullptr;
    TwCombine combine = nullptr;
    std::uintptr_t site = 0;
    TwThread thread{};
  };
  struct Simdgroup {
    std::array<std::uint32_t, 2> sub{};  // simdgroup barriers so far that order device, threadgroup memory
    // Issue slots and memory instructions so far, and the most that a lane used since the last point where all met.
    std::uint64_t slots = 0, memory = 0;
    std::uint64_t segment_slots = 0, segment_memory = 0;
    void close_segment() {
      slots += segment_slots;
      memory += segment_memory;
      segment_slots = segment_memory = 0;
    }
  };
  // Accesses of the running lane since it was switched to; neighbours merge up to 16 bytes.
  struct Stream {
    std::uintptr_t end = 0;
    std::size_t bytes = 0;
    std::uint64_t instructions = 0;
  };
  struct Raw {  // a finding whose code addresses are not yet lines
    std::string kind, text;
    std::uintptr_t site = 0, other = 0;
  };

  static void enter_lane(void* lane);
  void run_group(Size3 group);
  [[nodiscard]] bool set_up_lanes(Size3 group);
  void run_simdgroup(std::uint32_t simdgroup);
  void switch_to(Lane& lane);
  void leave_lane();
  [[noreturn]] void abandon_lane();
  bool resolve_simdgroup(std::uint32_t simdgroup);
  void complete(std::uint32_t simdgroup, const Lane& first, void* const* posted);
  bool release_barrier();
  void divergence(const std::string& what, const Lane& a, const Lane& b);
  void fatal(Raw finding);
  void add(Raw finding);
  [[nodiscard]] bool is_known(const char* kind, std::uintptr_t site, std::uintptr_t other) const;
  void check(Region& region, bool is_threadgroup, std::uintptr_t address, std::size_t size, bool write,
             std::uintptr_t site, bool whole_simdgroup);
  [[nodiscard]] bool ordered(const Touch& earlier, bool is_threadgroup, const Touch& now) const;
  void race(const Region& region, bool is_threadgroup, std::size_t offset, const Touch& a, bool a_writes,
            const Touch& b, bool b_writes);
  void count(bool is_threadgroup, bool is_constant, std::uintptr_t address, std::size_t size, bool write);
  [[nodiscard]] std::string name_of(const Touch& touch) const;
  [[nodiscard]] std::string thread_name(const Lane& lane) const;
  [[nodiscard]] std::vector<std::uint32_t> order_of(std::uint32_t n);

  const Launch& launch_;
  Schedule schedule_;
  Mode mode_;
  const Module& module_;
  const TwEntry& entry_;
  std::vector<Region>& device_;
  std::vector<void*> arguments_;
  std::mt19937_64 random_;

  ThreadgroupMemory threadgroup_;
  FiberStacks stacks_;
  std::vector<Lane> lanes_;
  std::vector<Simdgroup> simdgroups_;
  void* scheduler_stack_ = nullptr;
  Lane* running_ = nullptr;
  std::uint32_t combining_ = 0;  // simdgroup whose collective operation runs now
  std::uintptr_t combine_site_ = 0;
  bool in_combine_ = false;
  bool dead_ = false;  // a finding after which the launch cannot go on

  std::uint32_t group_index_ = 0;
  std::uint32_t threads_per_group_ = 0;
  std::array<std::uint32_t, 2> epoch_{};  // device, threadgroup
  std::size_t last_region_ = 0;

  std::vector<Raw> raw_;
  Counts counts_;
  std::array<Stream, 4> streams_{};  // device read, write, threadgroup read, write
  TwCounts baseline_{};
  std::uint64_t group_barriers_ = 0;
};

}  // namespace tilewise::metal_bench
