#pragma once

// The timing rules of every figure: at least 3 warm-up calls and 50 ms, then seven batches, each of as many calls as
// make it at least 20 ms; contenders take turns batch by batch, so that a slow spell of the machine hits all of them.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tilewise::cli {

inline constexpr int batch_count = 7;

struct Timing {
  std::int64_t calls_per_batch = 1;
  double median = 0, least = 0, most = 0;  // seconds per call, over the batches
};

// `step` is called before every batch and warm-up with the contender's index.
std::vector<Timing> time_interleaved(std::span<const std::function<void()>> contenders,
                                     const std::function<void(std::size_t contender)>& step);

}  // namespace tilewise::cli
