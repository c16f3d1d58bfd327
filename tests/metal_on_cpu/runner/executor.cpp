#include "executor.hpp"

#include <xmmintrin.h>

#include <algorithm>

#include <numeric>
#include <span>
#include <sstream>

namespace tilewise::metal_bench {
namespace {

constexpr std::size_t stack_bytes = std::size_t{256} << 10;
constexpr unsigned flag_device = 1;
constexpr unsigned flag_threadgroup = 2;
// Issue slots: a scalar operation, a load or store of up to 16 bytes a lane, a shuffle or a vote is one; a matrix
// product is 512 multiply-adds over 32 lanes; a reduction is a butterfly of 5 shuffles and 5 operations.
constexpr std::uint64_t product_slots = 16;
constexpr std::uint64_t reduction_slots = 10;

Executor* current = nullptr;

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

std::uint64_t scalar_operations(const TwCounts& c) {
  return c.fma + c.mul + c.add + c.compare + c.divide + c.exponential + c.special;
}

}  // namespace

Executor::Executor(const Launch& launch, Schedule schedule, Mode mode, const Module& module, const TwEntry& entry,
                   std::vector<Region>& device, std::vector<void*> arguments)
    : launch_(launch),
      schedule_(schedule),
      mode_(mode),
      module_(module),
      entry_(entry),
      device_(device),
      arguments_(std::move(arguments)),
      random_(schedule.seed),
      stacks_(launch.threads.x * launch.threads.y * launch.threads.z, stack_bytes),
      lanes_(launch.threads.x * launch.threads.y * launch.threads.z),
      simdgroups_(ceil_div(launch.threads.x * launch.threads.y * launch.threads.z, simd_width)),
      threads_per_group_(launch.threads.x * launch.threads.y * launch.threads.z) {}

std::vector<std::uint32_t> Executor::order_of(std::uint32_t n) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  if (schedule_.order == Order::reverse) std::ranges::reverse(order);
  if (schedule_.order == Order::random) std::ranges::shuffle(order, random_);
  return order;
}

void Executor::run() {
  current = this;
  const unsigned control = _mm_getcsr();
  constexpr unsigned flush_to_zero = 0x8000, denormals_are_zero = 0x40;
  if (schedule_.flush_denormals) _mm_setcsr(control | flush_to_zero | denormals_are_zero);
  const Size3 groups = launch_.groups;
  for (const std::uint32_t group : order_of(groups.x * groups.y * groups.z)) {
    group_index_ = group;
    run_group({group % groups.x, group / groups.x % groups.y, group / groups.x / groups.y});
    if (dead_) break;
  }
  _mm_setcsr(control);
  current = nullptr;
}

bool Executor::set_up_lanes(Size3 group) {
  const Size3 threads = launch_.threads;
  Size3 total = launch_.grid_threads;
  if (total.x == 0) {
    total = {launch_.groups.x * threads.x, launch_.groups.y * threads.y, launch_.groups.z * threads.z};
  }
  const auto in_group = [](std::uint32_t all, std::uint32_t at, std::uint32_t size) {
    return at * size >= all ? 0U : std::min(size, all - at * size);
  };
  const Size3 size{in_group(total.x, group.x, threads.x), in_group(total.y, group.y, threads.y),
                   in_group(total.z, group.z, threads.z)};
  const std::uint32_t present = size.x * size.y * size.z;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    lane = Lane{};
    if (i >= present) continue;
    const Size3 p{i % size.x, i / size.x % size.y, i / size.x / size.y};
    TwThread& t = lane.thread;
    const auto set = [](unsigned* to, Size3 v) {
      to[0] = v.x;
      to[1] = v.y;
      to[2] = v.z;
    };
    set(t.position_in_grid, {group.x * threads.x + p.x, group.y * threads.y + p.y, group.z * threads.z + p.z});
    set(t.position_in_group, p);
    set(t.group_in_grid, group);
    set(t.threads_per_group, size);
    set(t.dispatch_threads_per_group, threads);
    set(t.groups_per_grid, launch_.groups);
    set(t.threads_per_grid, total);
    t.index_in_group = i;
    t.lane = i % simd_width;
    t.simdgroup = i / simd_width;
    t.simdgroups_per_group = ceil_div(present, simd_width);
    lane.state = State::ready;
    lane.stack = stacks_.prepare(i, &Executor::enter_lane, &lane);
  }
  return present > 0;
}

void Executor::run_group(Size3 group) {
  if (!set_up_lanes(group)) return;
  std::ranges::fill(simdgroups_, Simdgroup{});
  ++epoch_[0];
  ++epoch_[1];
  group_barriers_ = 0;
  threadgroup_.poison();
  const auto has_ready = [&](std::uint32_t s) {
    const std::size_t begin = std::size_t{s} * simd_width;
    const auto lanes = std::span(lanes_).subspan(begin, std::min<std::size_t>(lanes_.size() - begin, simd_width));
    return std::ranges::any_of(lanes, [](const Lane& lane) { return lane.state == State::ready; });
  };
  std::vector<std::uint32_t> order = order_of(static_cast<std::uint32_t>(simdgroups_.size()));
  while (!dead_) {
    if (schedule_.order == Order::random) std::ranges::shuffle(order, random_);
    const auto next = std::ranges::find_if(order, has_ready);
    if (next != order.end()) {
      run_simdgroup(*next);
    } else if (!release_barrier()) {
      break;
    }
  }
  for (Simdgroup& s : simdgroups_) {
    s.close_segment();
    counts_.longest_slots = std::max(counts_.longest_slots, s.slots + group_barriers_);
    counts_.memory_instructions += s.memory;
  }
  counts_.simdgroups += simdgroups_.size();
  counts_.threadgroup_barriers += group_barriers_;
  counts_.longest_barriers = std::max(counts_.longest_barriers, group_barriers_);
}

// All ready lanes of one simdgroup run until each has stopped; then their common operation, if any, is completed.
void Executor::run_simdgroup(std::uint32_t simdgroup) {
  const std::uint32_t first = simdgroup * simd_width;
  const std::uint32_t n = std::min<std::uint32_t>(simd_width, static_cast<std::uint32_t>(lanes_.size()) - first);
  if (schedule_.order == Order::random) {
    for (const std::uint32_t i : order_of(n)) {
      if (lanes_[first + i].state == State::ready) switch_to(lanes_[first + i]);
      if (dead_) return;
    }
  } else {
    for (std::uint32_t k = 0; k < n; ++k) {
      Lane& lane = lanes_[first + (schedule_.order == Order::forward ? k : n - 1 - k)];
      if (lane.state == State::ready) switch_to(lane);
      if (dead_) return;
    }
  }
  resolve_simdgroup(simdgroup);
}

void Executor::switch_to(Lane& lane) {
  running_ = &lane;
  if (mode_ == Mode::counted) {
    baseline_ = *module_.counts();
    streams_ = {};
  }
  tw_switch_fiber(&scheduler_stack_, lane.stack);
  if (mode_ == Mode::counted) {
    std::uint64_t memory = 0;
    for (const Stream& stream : streams_) memory += stream.instructions;
    const std::uint64_t slots = scalar_operations(*module_.counts()) - scalar_operations(baseline_) + memory;
    Simdgroup& s = simdgroups_[lane.thread.simdgroup];
    s.segment_slots = std::max(s.segment_slots, slots);
    s.segment_memory = std::max(s.segment_memory, memory);
  }
  running_ = nullptr;
}

void Executor::leave_lane() {
  Lane& lane = *running_;
  tw_switch_fiber(&lane.stack, scheduler_stack_);
}

void Executor::abandon_lane() {
  running_->state = State::finished;
  leave_lane();
  __builtin_unreachable();
}

void Executor::enter_lane(void* argument) {
  Lane& lane = *static_cast<Lane*>(argument);
  current->entry_.run(&lane.thread, current->arguments_.data());
  lane.state = State::finished;
  current->leave_lane();
}

void Executor::collective(int kind, void* posted, TwCombine combine, std::uintptr_t site) {
  Lane& lane = *running_;
  lane.state = State::at_collective;
  lane.kind = kind;
  lane.posted = posted;
  lane.combine = combine;
  lane.site = site;
  leave_lane();
}

void Executor::simdgroup_barrier(unsigned flags, std::uintptr_t site) {
  running_->flags = flags;
  collective(tw_op_simdgroup_barrier, running_, nullptr, site);
}

void Executor::threadgroup_barrier(unsigned flags, std::uintptr_t site) {
  Lane& lane = *running_;
  lane.state = State::at_barrier;
  lane.flags = flags;
  lane.site = site;
  leave_lane();
}

// False when the simdgroup waits at a threadgroup barrier or has ended.
bool Executor::resolve_simdgroup(std::uint32_t simdgroup) {
  const std::uint32_t first = simdgroup * simd_width;
  const std::uint32_t n = std::min<std::uint32_t>(simd_width, static_cast<std::uint32_t>(lanes_.size()) - first);
  const Lane* leader = nullptr;
  void* posted[simd_width] = {};
  for (std::uint32_t i = 0; i < n; ++i) {
    const Lane& lane = lanes_[first + i];
    if (lane.state != State::at_collective) continue;
    if (leader == nullptr) leader = &lane;
    posted[i] = lane.posted;
  }
  if (leader == nullptr) return false;
  for (std::uint32_t i = 0; i < n; ++i) {
    const Lane& lane = lanes_[first + i];
    if (lane.state == State::absent) continue;
    if (lane.state != State::at_collective) {
      divergence("a simdgroup operation that not every thread of the simdgroup reaches", *leader, lane);
      return false;
    }
    if (lane.site != leader->site || lane.kind != leader->kind || lane.combine != leader->combine) {
      divergence("threads of one simdgroup meet at different simdgroup operations", *leader, lane);
      return false;
    }
  }
  complete(simdgroup, *leader, posted);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (lanes_[first + i].state == State::at_collective) lanes_[first + i].state = State::ready;
  }
  return true;
}

void Executor::complete(std::uint32_t simdgroup, const Lane& leader, void* const* posted) {
  Simdgroup& s = simdgroups_[simdgroup];
  std::uint64_t slots = 1;
  switch (leader.kind) {
    case tw_op_simdgroup_barrier:
      if (leader.flags & flag_device) ++s.sub[0];
      if (leader.flags & flag_threadgroup) ++s.sub[1];
      ++counts_.simdgroup_barriers;
      break;
    case tw_op_shuffle: ++counts_.shuffles; break;
    case tw_op_reduce:
      ++counts_.reductions;
      slots = reduction_slots;
      break;
    case tw_op_vote: ++counts_.votes; break;
    case tw_op_matrix_product:
      ++counts_.matrix_products;
      slots = product_slots;
      break;
    case tw_op_matrix_memory_transposed:  // a lane's two elements are not neighbours
      slots = 2;
      s.memory += slots;
      break;
    default: ++s.memory; break;
  }
  s.close_segment();
  s.slots += slots;
  if (leader.combine == nullptr) return;
  combining_ = simdgroup;
  combine_site_ = leader.site;
  in_combine_ = true;
  leader.combine(posted);
  in_combine_ = false;
}

// Called when no lane can run. True: all lanes of the group waited at one barrier and go on.
bool Executor::release_barrier() {
  const Lane* waiting = nullptr;
  for (const Lane& lane : lanes_) {
    if (lane.state == State::at_barrier) waiting = &lane;
  }
  if (waiting == nullptr) return false;
  for (const Lane& lane : lanes_) {
    if (lane.state == State::absent) continue;
    if (lane.state == State::finished) {
      divergence("a threadgroup barrier that not every thread reaches", *waiting, lane);
      return false;
    }
    if (lane.site != waiting->site) {
      divergence("threads of one group wait at different threadgroup barriers", *waiting, lane);
      return false;
    }
  }
  if (waiting->flags & flag_device) ++epoch_[0];
  if (waiting->flags & flag_threadgroup) ++epoch_[1];
  ++group_barriers_;
  for (Simdgroup& s : simdgroups_) s.close_segment();
  for (Lane& lane : lanes_) {
    if (lane.state == State::at_barrier) lane.state = State::ready;
  }
  return true;
}

void* Executor::threadgroup_array(int id, std::size_t bytes, const char* name) {
  void* const memory = threadgroup_.reserve(id, bytes, name);
  if (memory == nullptr) {
    fatal({"limits", "threadgroup array " + std::string(name) + " does not fit any device"});
    abandon_lane();
  }
  return memory;
}

unsigned Executor::lane_index() const { return running_->thread.lane; }

Executor* running_executor() { return current; }

}  // namespace tilewise::metal_bench
