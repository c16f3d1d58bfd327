// The executor's half that looks at every memory access, and words the findings.

#include <algorithm>
#include <sstream>

#include "executor.hpp"

namespace tilewise::metal_bench {
namespace {

constexpr std::size_t max_findings = 12;
constexpr std::size_t near = std::size_t{1} << 22;  // how far from a buffer an address is still named after it

}  // namespace

void Executor::access(std::uintptr_t address, std::size_t size, bool write, std::uintptr_t site) {
  if (running_ == nullptr || stacks_.contains(address)) return;
  if (threadgroup_.near(address)) {
    Region* const array = threadgroup_.find(address, size);
    if (array == nullptr) {
      fatal(
          {"bounds", thread_name(*running_) + (write ? " writes " : " reads ") + threadgroup_.describe(address), site});
      abandon_lane();
    }
    if (mode_ == Mode::counted) {
      count(true, false, address, size, write);
    } else {
      check(*array, true, address, size, write, site, false);
    }
    return;
  }
  if (last_region_ >= device_.size() || !device_[last_region_].contains(address, size)) {
    for (last_region_ = 0; last_region_ < device_.size(); ++last_region_) {
      if (device_[last_region_].contains(address, size)) break;
    }
  }
  if (last_region_ < device_.size()) {
    Region& region = device_[last_region_];
    if (write && !region.writable) {
      fatal({"bounds", thread_name(*running_) + " writes the input " + region.name, site});
      abandon_lane();
    }
    if (mode_ == Mode::counted) {
      count(false, region.is_constant, address, size, write);
    } else {
      check(region, false, address, size, write, site, false);
    }
    return;
  }
  if (module_.contains(address)) {  // program-scope constants
    if (write) add({"bounds", thread_name(*running_) + " writes program-scope memory", site});
    return;
  }
  // Nearest buffer, for the message only.
  std::ostringstream text;
  text << thread_name(*running_) << (write ? " writes " : " reads ") << size << " bytes out of bounds";
  const Region* nearest = nullptr;
  std::size_t distance = 0;
  for (const Region& region : device_) {
    const std::uintptr_t end = region.begin + region.bytes;
    const std::size_t d = address < region.begin ? region.begin - address
                          : address + size > end ? address + size - end
                                                 : 0;
    if (nearest == nullptr || d < distance) {
      nearest = &region;
      distance = d;
    }
  }
  if (nearest != nullptr && distance < near) {
    text << ": " << (address < nearest->begin ? "before the start of " : "up to byte ");
    if (address >= nearest->begin) text << address + size - nearest->begin << " of the " << nearest->bytes << " of ";
    text << "buffer " << nearest->name;
  }
  fatal({"bounds", text.str(), site});
  abandon_lane();
}

bool Executor::matrix_access(std::uintptr_t address, std::size_t size, bool write) {
  Lane& lane = lanes_[combining_ * simd_width];
  Region* region = nullptr;
  const bool is_threadgroup = threadgroup_.near(address);
  if (is_threadgroup) {
    region = threadgroup_.find(address, size);
  } else {
    for (Region& candidate : device_) {
      if (candidate.contains(address, size)) region = &candidate;
    }
  }
  const std::string who = "simdgroup " + std::to_string(combining_) + " of group " + std::to_string(group_index_);
  if (region == nullptr || (write && !region->writable)) {
    fatal({"bounds",
           who + (write ? " stores" : " loads") + " a matrix row " +
               (region != nullptr ? "in the input " + region->name
                : is_threadgroup  ? "in " + threadgroup_.describe(address + size - 1)
                                  : "outside every buffer"),
           combine_site_});
    return false;
  }
  if (mode_ == Mode::counted) {
    (is_threadgroup ? (write ? counts_.threadgroup_bytes_written : counts_.threadgroup_bytes_read)
                    : (write ? counts_.device_bytes_written : counts_.device_bytes_read)) += size;
    return true;
  }
  if (mode_ == Mode::plain) return true;
  running_ = &lane;
  check(*region, is_threadgroup, address, size, write, combine_site_, true);
  running_ = nullptr;
  return true;
}

void Executor::count(bool is_threadgroup, bool is_constant, std::uintptr_t address, std::size_t size, bool write) {
  if (is_constant) {
    counts_.constant_bytes_read += size;
    return;
  }
  (is_threadgroup ? (write ? counts_.threadgroup_bytes_written : counts_.threadgroup_bytes_read)
                  : (write ? counts_.device_bytes_written : counts_.device_bytes_read)) += size;
  Stream& stream = streams_[(is_threadgroup ? 2U : 0U) + (write ? 1U : 0U)];
  if (address == stream.end && stream.bytes + size <= 16) {
    stream.bytes += size;
  } else {
    stream.bytes = size;
    ++stream.instructions;
  }
  stream.end = address + size;
}

bool Executor::ordered(const Touch& earlier, bool is_threadgroup, const Touch& now) const {
  if (earlier.epoch == 0) return true;
  const std::uint32_t a = earlier.thread & ~collective_bit;
  const std::uint32_t b = now.thread & ~collective_bit;
  if (!is_threadgroup && a / threads_per_group_ != b / threads_per_group_) return false;
  if (earlier.epoch != now.epoch) return true;
  if (a == b && !((earlier.thread | now.thread) & collective_bit)) return true;
  const bool same_simdgroup = a % threads_per_group_ / simd_width == b % threads_per_group_ / simd_width;
  return same_simdgroup && earlier.sub != now.sub;
}

void Executor::check(Region& region, bool is_threadgroup, std::uintptr_t address, std::size_t size, bool write,
                     std::uintptr_t site, bool whole_simdgroup) {
  if (region.cells.empty()) return;
  const std::size_t space = is_threadgroup ? 1 : 0;
  const TwThread& thread = running_->thread;
  const Touch now{(group_index_ * threads_per_group_ + thread.index_in_group) | (whole_simdgroup ? collective_bit : 0U),
                  epoch_[space], simdgroups_[thread.simdgroup].sub[space],
                  static_cast<std::uint32_t>(site - module_.base())};
  const std::uint32_t serial = is_threadgroup ? group_index_ + 2 : 1;
  const auto simdgroup_of = [&](const Touch& t) {
    return (t.thread & ~collective_bit) / simd_width;  // groups are whole simdgroups but for the last: good enough to
  };  // prefer readers of different simdgroups
  for (std::size_t offset = address - region.begin; offset < address - region.begin + size; ++offset) {
    Cell& cell = region.cells[offset];
    if (!ordered(cell.write, is_threadgroup, now)) {
      race(region, is_threadgroup, offset, cell.write, true, now, write);
    }
    if (write) {
      for (const Touch& read : cell.reads) {
        if (!ordered(read, is_threadgroup, now)) race(region, is_threadgroup, offset, read, false, now, true);
      }
      cell.write = now;
      cell.initialised = serial;
    } else {
      if (cell.initialised != serial && !is_known("uninitialised", site, 0)) {
        add({"uninitialised",
             thread_name(*running_) + " reads byte " + std::to_string(offset) + " of " +
                 (is_threadgroup ? "threadgroup array " : "buffer ") + region.name + " before anyone wrote it",
             site});
      }
      if (cell.reads[0].thread != now.thread) {
        if (simdgroup_of(cell.reads[0]) != simdgroup_of(now)) cell.reads[2] = cell.reads[0];
        cell.reads[1] = cell.reads[0];
      }
      cell.reads[0] = now;
    }
  }
}

void Executor::race(const Region& region, bool is_threadgroup, std::size_t offset, const Touch& a, bool a_writes,
                    const Touch& b, bool b_writes) {
  const std::uintptr_t site = module_.base() + b.site, other = module_.base() + a.site;
  if (is_known("race", site, other)) return;
  std::ostringstream text;
  text << "on byte " << offset << " of " << (is_threadgroup ? "threadgroup array " : "buffer ") << region.name << ": "
       << name_of(b) << (b_writes ? " writes" : " reads") << " it and " << name_of(a) << (a_writes ? " wrote" : " read")
       << " it with no barrier between";
  add({"race", text.str(), site, other});
}

// ---------------------------------------------------------------------------------------------- findings

std::string Executor::name_of(const Touch& touch) const {
  const std::uint32_t thread = touch.thread & ~collective_bit;
  const std::string group = " of group " + std::to_string(thread / threads_per_group_);
  const std::uint32_t index = thread % threads_per_group_;
  if (touch.thread & collective_bit) return "simdgroup " + std::to_string(index / simd_width) + group;
  return "thread " + std::to_string(index) + group;
}

std::string Executor::thread_name(const Lane& lane) const {
  return "thread " + std::to_string(lane.thread.index_in_group) + " of group " + std::to_string(group_index_);
}

// One finding for each pair of places in the source, however often it happens.
bool Executor::is_known(const char* kind, std::uintptr_t site, std::uintptr_t other) const {
  return raw_.size() >= max_findings || (site != 0 && std::ranges::any_of(raw_, [&](const Raw& known) {
                                           return known.site == site && known.other == other && known.kind == kind;
                                         }));
}

void Executor::add(Raw finding) {
  if (is_known(finding.kind.c_str(), finding.site, finding.other)) return;
  for (const Raw& known : raw_) {
    if (known.kind == finding.kind && known.text == finding.text) return;
  }
  raw_.push_back(std::move(finding));
}

void Executor::fatal(Raw finding) {
  if (raw_.size() >= max_findings) raw_.pop_back();  // the one that ends the launch is always told
  add(std::move(finding));
  dead_ = true;
}

void Executor::divergence(const std::string& what, const Lane& a, const Lane& b) {
  const std::string other = b.state == State::finished ? " has returned" : " waits elsewhere";
  fatal({"divergence", what + ": " + thread_name(a) + " waits, " + thread_name(b) + other, a.site,
         b.state == State::finished ? 0 : b.site});
}

void Executor::report(const char* kind, const std::string& message) {
  const std::string who = in_combine_ ? "simdgroup " + std::to_string(combining_) + ": " : std::string();
  add({kind, who + message, in_combine_ ? combine_site_ : 0});
}

void Executor::undefined_behaviour(const std::string& message) {
  add({"undefined", (running_ != nullptr ? thread_name(*running_) + ": " : std::string()) + message});
}

void Executor::memory_fault(std::uintptr_t address) {
  for (const Region& region : device_) {
    const std::uintptr_t end = region.begin + region.bytes;
    if (address >= end && address - end < near) {
      fatal({"bounds", "a fault " + std::to_string(address - end) + " bytes past the end of buffer " + region.name});
      abandon_lane();
    }
    if (address < region.begin && region.begin - address < near) {
      fatal({"bounds", "a fault " + std::to_string(region.begin - address) + " bytes before buffer " + region.name});
      abandon_lane();
    }
  }
  fatal({"bounds", stacks_.contains(address) ? "a thread's private memory overflows" : "a fault outside every buffer"});
  abandon_lane();
}

std::uintptr_t Executor::fault_stack() const {
  const auto prepared = reinterpret_cast<std::uintptr_t>(
      stacks_.prepare(running_->thread.index_in_group, &Executor::enter_lane, running_));
  return (prepared & ~std::uintptr_t{15}) - 8;  // as after a call
}

std::vector<Finding> Executor::findings() const {
  std::vector<std::uintptr_t> sites;
  for (const Raw& raw : raw_) {
    if (raw.site != 0) sites.push_back(raw.site);
    if (raw.other != 0) sites.push_back(raw.other);
  }
  const std::vector<std::string> lines = module_.lines_of(sites);
  std::vector<Finding> out;
  std::size_t next = 0;
  for (const Raw& raw : raw_) {
    std::string message = raw.text;
    if (raw.site != 0) message += " (" + lines[next++];
    if (raw.other != 0) message += " and " + lines[next++];
    if (raw.site != 0) message += ")";
    out.push_back({raw.kind, message});
  }
  return out;
}

}  // namespace tilewise::metal_bench
