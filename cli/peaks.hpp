#pragma once

// The machine's limits, measured: what the percentages of a benchmark refer to.

#include <nlohmann/json.hpp>
#include <optional>

namespace tilewise::cli {

struct Peaks {
  double fma_f32_gflops = 0;  // one thread, best instruction set of this machine, independent fused multiply-adds
  double fma_f64_gflops = 0;
  std::optional<double> amx_bf16_gflops;      // one thread; absent where the unit or the permission to use it is
  double read_gb_s = 0;                       // one thread, from a block larger than the caches
  std::optional<double> read_gb_s_2_threads;  // absent on one processor
};

// Takes about two seconds.
Peaks measure_peaks();

nlohmann::ordered_json to_json(const Peaks& peaks);

}  // namespace tilewise::cli
