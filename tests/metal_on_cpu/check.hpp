#pragma once

// What the bench's test programs share: counting results, and launching with all schedules.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench.hpp"

namespace tilewise::metal_bench {

inline const std::vector<Schedule>& schedules() {
  static const std::vector<Schedule> all{
      {Order::forward, 0}, {Order::reverse, 0}, {Order::random, 1}, {Order::random, 2}};
  return all;
}

class Report {
 public:
  // `why` empty: passed.
  void add(const std::string& name, const std::string& why) {
    if (why.empty()) {
      ++passed_;
    } else {
      ++failed_;
      std::printf("FAILED %s: %s\n", name.c_str(), why.c_str());
      std::fflush(stdout);
    }
  }
  void skip() { ++skipped_; }
  int finish() const {
    std::printf("%d passed, %d failed, %d skipped\n", passed_, failed_, skipped_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  int passed_ = 0;
  int failed_ = 0;
  int skipped_ = 0;
};

inline std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings) text += (text.empty() ? "" : "; ") + f.kind + ": " + f.message;
  return text;
}

// A buffer over a whole vector.
template <class T>
Buffer buffer_of(int index, const std::string& role, std::vector<T>& data, Access access) {
  return {index, role, data.data(), data.size() * sizeof(T), access, 0};
}

// Runs the launch in every schedule and compares the bits of all outputs. Empty: no finding, the same bits.
inline std::string run_in_all_schedules(const Launch& launch, Mode mode) {
  std::vector<std::vector<std::byte>> first;
  for (std::size_t s = 0; s < schedules().size(); ++s) {
    const Result result = run(launch, schedules()[s], mode);
    if (!result.findings.empty()) return "schedule " + std::to_string(s) + ": " + text_of(result.findings);
    std::size_t i = 0;
    for (const Buffer& buffer : launch.buffers) {
      if (buffer.access != Access::output && buffer.access != Access::in_out) continue;
      const auto* const data = static_cast<const std::byte*>(buffer.data);
      if (s == 0) {
        first.emplace_back(data, data + buffer.bytes);
      } else if (std::memcmp(first[i].data(), data, buffer.bytes) != 0) {
        return "schedule " + std::to_string(s) + " gives other bits in " + buffer.role;
      }
      ++i;
    }
  }
  return {};
}

}  // namespace tilewise::metal_bench
