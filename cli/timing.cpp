#include "timing.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

namespace tilewise::cli {
namespace {

constexpr int warm_up_calls = 3;
constexpr double warm_up_seconds = 0.05;
constexpr double batch_seconds = 0.02;
// Batches later than the one that was measured may run a little faster.
constexpr double margin = 1.25;

double seconds_of(const std::function<void()>& call, std::int64_t calls) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Warms up and returns how many calls a batch takes.
std::int64_t calls_per_batch(const std::function<void()>& call) {
  double total = 0;
  double fastest = 1e300;
  for (int i = 0; i < warm_up_calls || total < warm_up_seconds; ++i) {
    const double time = seconds_of(call, 1);
    total += time;
    fastest = std::min(fastest, time);
  }
  if (fastest >= batch_seconds) return 1;
  // Single calls carry the clock's own cost: measure whole batches until one is long enough.
  auto calls = static_cast<std::int64_t>(std::ceil(batch_seconds / std::max(fastest, 1e-9)));
  for (;;) {
    const double time = seconds_of(call, calls);
    const double needed = std::ceil(static_cast<double>(calls) * margin * batch_seconds / std::max(time, 1e-9));
    if (time >= batch_seconds) return std::max<std::int64_t>(1, static_cast<std::int64_t>(needed));
    calls = std::max(calls + 1, static_cast<std::int64_t>(std::min(needed, 100.0 * static_cast<double>(calls))));
  }
}

}  // namespace

std::vector<Timing> time_interleaved(std::span<const std::function<void()>> contenders,
                                     const std::function<void(std::size_t contender)>& step) {
  std::vector<Timing> timings(contenders.size());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    step(i);
    timings[i].calls_per_batch = calls_per_batch(contenders[i]);
  }
  std::vector<std::array<double, batch_count>> times(contenders.size());
  for (std::size_t batch = 0; batch < batch_count; ++batch) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      step(i);
      const std::int64_t calls = timings[i].calls_per_batch;
      times[i][batch] = seconds_of(contenders[i], calls) / static_cast<double>(calls);
    }
  }
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    timings[i].least = times[i].front();
    timings[i].median = times[i][batch_count / 2];
    timings[i].most = times[i].back();
  }
  return timings;
}

}  // namespace tilewise::cli
