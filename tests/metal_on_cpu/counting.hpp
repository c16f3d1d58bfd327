#pragma once

// Rows of bench/results/metal_counts.json: what a launch did, and the ratios in which designs are compared.

#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench.hpp"

namespace tilewise::metal_bench {

struct CountProblem {
  std::size_t n = 0;  // queries and keys
  std::size_t d = 0;
  bool causal = false;
  std::string dtype = "float32";

  [[nodiscard]] std::uint64_t pairs() const { return causal ? n * (n + 1) / 2 : n * n; }
  // 8x8 tiles of the score matrix that hold a visible pair.
  [[nodiscard]] std::uint64_t tiles() const {
    const std::uint64_t t = (n + 7) / 8;
    return causal ? t * (t + 1) / 2 : t * t;
  }
  [[nodiscard]] std::uint64_t scores() const { return 64 * tiles(); }
  [[nodiscard]] std::uint64_t minimum_products() const { return 2 * ((d + 7) / 8) * tiles(); }
};

struct CountRow {
  std::string kernel;
  CountProblem problem;
  Counts counts;
  std::size_t threadgroup_bytes = 0;
  std::uint32_t groups = 0;
  std::uint32_t threads = 0;
};

// Runs the launch once in counting mode; throws BenchError when the bench finds something.
inline CountRow count_launch(const std::string& kernel, const CountProblem& problem, const Launch& launch) {
  const Result result = run(launch, {}, Mode::counted);
  if (!result.findings.empty()) {
    throw BenchError(kernel + ": " + result.findings[0].kind + ": " + result.findings[0].message);
  }
  return {kernel,
          problem,
          result.counts,
          result.threadgroup_bytes,
          launch.groups.x * launch.groups.y * launch.groups.z,
          launch.threads.x * launch.threads.y * launch.threads.z};
}

// Ratios. Products are 8x8x8, 512 multiply-adds each; a score is an element of a visible 8x8 tile.
struct CountRatios {
  double scalar_per_score;  // fma, mul, add, compare outside products
  double exponentials_per_score;
  double product_share;             // of multiply-adds: products against fma, mul and add
  double device_bytes_per_product;  // against the minimum number of products, so that scalar kernels compare
  double threadgroup_bytes_read_per_product;
  double threadgroup_bytes_written_per_product;
  double threadgroup_bytes_per_flop;
  double memory_instructions_per_product;
  double shuffles_per_1000_products;
};

inline CountRatios ratios_of(const CountRow& row) {
  const Counts& c = row.counts;
  const auto scores = static_cast<double>(row.problem.scores());
  const auto products = static_cast<double>(row.problem.minimum_products());
  const auto part = [](std::uint64_t a, double b) { return static_cast<double>(a) / b; };
  const double in_products = 512.0 * static_cast<double>(c.matrix_products);
  const auto outside = static_cast<double>(c.fma + c.mul + c.add);
  return {part(c.fma + c.mul + c.add + c.compare, scores),
          part(c.exponential, scores),
          in_products / (in_products + outside),
          part(c.device_bytes_read + c.device_bytes_written, products),
          part(c.threadgroup_bytes_read, products),
          part(c.threadgroup_bytes_written, products),
          part(c.threadgroup_bytes_read + c.threadgroup_bytes_written, 1024 * products),
          part(c.memory_instructions, products),
          part(1000 * (c.shuffles + 5 * c.reductions), products)};
}

// `cited_path`: counts of other projects' kernels, a JSON array that is taken over as it is.
inline void write_counts(const std::string& path, const std::vector<CountRow>& rows, const std::string& cited_path) {
  std::ifstream cited(cited_path);
  if (!cited) throw BenchError("cannot read " + cited_path);
  std::ofstream out(path);
  out << "{\n\"schema\": 1,\n\"note\": \"work counted by tests/metal_on_cpu; nothing here is a speed and nothing ran "
         "on Apple hardware; the cited rows were counted elsewhere and are not counted again\",\n\"cited\": "
      << cited.rdbuf() << ",\n\"rows\": [\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const CountRow& row = rows[i];
    const Counts& c = row.counts;
    const CountRatios r = ratios_of(row);
    const std::pair<const char*, std::uint64_t> numbers[] = {
        {"device_bytes_read", c.device_bytes_read},
        {"device_bytes_written", c.device_bytes_written},
        {"threadgroup_bytes_read", c.threadgroup_bytes_read},
        {"threadgroup_bytes_written", c.threadgroup_bytes_written},
        {"constant_bytes_read", c.constant_bytes_read},
        {"memory_instructions", c.memory_instructions},
        {"matrix_products", c.matrix_products},
        {"fma", c.fma},
        {"mul", c.mul},
        {"add", c.add},
        {"compare", c.compare},
        {"divide", c.divide},
        {"exponential", c.exponential},
        {"special", c.special},
        {"shuffles", c.shuffles},
        {"reductions", c.reductions},
        {"votes", c.votes},
        {"simdgroup_barriers", c.simdgroup_barriers},
        {"threadgroup_barriers", c.threadgroup_barriers},
        {"longest_barriers", c.longest_barriers},
        {"longest_slots", c.longest_slots},
        {"simdgroups", c.simdgroups},
    };
    const std::pair<const char*, double> derived[] = {
        {"scalar_per_score", r.scalar_per_score},
        {"exponentials_per_score", r.exponentials_per_score},
        {"product_share", r.product_share},
        {"device_bytes_per_product", r.device_bytes_per_product},
        {"threadgroup_bytes_read_per_product", r.threadgroup_bytes_read_per_product},
        {"threadgroup_bytes_written_per_product", r.threadgroup_bytes_written_per_product},
        {"threadgroup_bytes_per_flop", r.threadgroup_bytes_per_flop},
        {"memory_instructions_per_product", r.memory_instructions_per_product},
        {"shuffles_per_1000_products", r.shuffles_per_1000_products},
    };
    out << "{\"kernel\": \"" << row.kernel << "\", \"n\": " << row.problem.n << ", \"d\": " << row.problem.d
        << ", \"mask\": \"" << (row.problem.causal ? "causal" : "full") << "\", \"dtype\": \"" << row.problem.dtype
        << "\", \"groups\": " << row.groups << ", \"threads\": " << row.threads
        << ", \"threadgroup_bytes\": " << row.threadgroup_bytes
        << ", \"minimum_products\": " << row.problem.minimum_products() << ",\n \"counts\": {";
    for (const auto& [name, value] : numbers)
      out << (name == numbers[0].first ? "" : ", ") << '"' << name << "\": " << value;
    out << "},\n \"ratios\": {";
    for (const auto& [name, value] : derived)
      out << (name == derived[0].first ? "" : ", ") << '"' << name << "\": " << value;
    out << "}}" << (i + 1 < rows.size() ? ",\n" : "\n");
  }
  out << "]\n}\n";
  if (!out) throw BenchError("cannot write " + path);
}

}  // namespace tilewise::metal_bench
