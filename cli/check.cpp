// tilewise check: every kernel against the float64 oracle on every case that it supports.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "command.hpp"
#include "files/output.hpp"
#include "machine.hpp"
#include "progress.hpp"
#include "tilewise/attention.hpp"
#include "verify/check.hpp"

namespace tilewise::cli {
namespace {

constexpr const char* check_examples = R"(Examples:
  tilewise check --quick
  tilewise check --kernel cpu.scalar --family band
  tilewise check --json check.json

A case is a kernel, an input, a dtype and a pass. Skipped means that the kernel refuses such problems. The last line
is `N passed, N failed, N skipped`; the exit code is 1 when a case failed. The column `budget` is the largest error of
the family's cases over what the rule of precision allows it (docs/numerics.md), in percent; - where nothing is judged
by that rule.)";

struct CheckFlags {
  std::string device = "cpu";
  std::string kernel, family, json;
  bool quick = false;
};

struct Counts {
  std::int64_t passed = 0, failed = 0, skipped = 0;

  void add(verify::Outcome outcome) {
    ++(outcome == verify::Outcome::passed ? passed : outcome == verify::Outcome::failed ? failed : skipped);
  }
};

const char* outcome_name(verify::Outcome outcome) {
  switch (outcome) {
    case verify::Outcome::passed: return "passed";
    case verify::Outcome::failed: return "failed";
    case verify::Outcome::skipped: return "skipped";
  }
  return "unknown";
}

// Counts and the largest error by kernel and family, in the order of their first results.
class Table {
 public:
  void add(const verify::CheckResult& result) {
    for (Row& row : rows_) {
      if (row.kernel == result.kernel && row.family == result.family) return row.add(result);
    }
    rows_.push_back({result.kernel, result.family, {}, 0});
    rows_.back().add(result);
  }

  void print() const {
    std::size_t kernel_width = 6;
    std::size_t family_width = 6;
    for (const Row& row : rows_) {
      kernel_width = std::max(kernel_width, row.kernel.size());
      family_width = std::max(family_width, row.family.size());
    }
    fmt::print("{:<{}}  {:<{}}  {:>7}  {:>7}  {:>7}  {:>6}\n", "kernel", kernel_width, "family", family_width, "passed",
               "failed", "skipped", "budget");
    std::vector<std::string> printed;
    for (const Row& first : rows_) {
      if (std::find(printed.begin(), printed.end(), first.kernel) != printed.end()) continue;
      printed.push_back(first.kernel);
      std::string label = first.kernel;
      for (const Row& row : rows_) {
        if (row.kernel != first.kernel) continue;
        const std::string budget = row.budget_share > 0 ? fmt::format("{:.0f}%", 100 * row.budget_share) : "-";
        fmt::print("{:<{}}  {:<{}}  {:>7}  {:>7}  {:>7}  {:>6}\n", label, kernel_width, row.family, family_width,
                   row.counts.passed, row.counts.failed, row.counts.skipped, budget);
        label.clear();
      }
    }
  }

 private:
  struct Row {
    std::string kernel, family;
    Counts counts;
    double budget_share;

    void add(const verify::CheckResult& result) {
      counts.add(result.outcome);
      budget_share = std::max(budget_share, result.budget_share);
    }
  };
  std::vector<Row> rows_;
};

nlohmann::ordered_json to_json(const verify::CheckResult& result) {
  return {{"kernel", result.kernel},
          {"family", result.family},
          {"name", result.name},
          {"dtype", name_of(result.dtype)},
          {"outcome", outcome_name(result.outcome)},
          {"detail", result.detail},
          {"max_error", result.max_error},
          {"rel_l2_error", result.rel_l2_error},
          {"budget_share", result.budget_share}};
}

void write_json(const std::string& path, const Counts& total, const std::vector<verify::CheckResult>& results) {
  nlohmann::ordered_json json{{"schema", 1},
                              {"machine", machine_json()},
                              {"passed", total.passed},
                              {"failed", total.failed},
                              {"skipped", total.skipped},
                              {"results", nlohmann::ordered_json::array()}};
  for (const verify::CheckResult& result : results) json["results"].push_back(to_json(result));
  const std::string text = json.dump(1) + "\n";
  const files::OutputFile file{path, {files::bytes_of(text)}};
  files::write_files(std::span(&file, 1));
}

int run(const CheckFlags& flags) {
  verify::CheckOptions options;
  options.device = parse_device(flags.device);
  options.kernel = flags.kernel;
  options.family = flags.family;
  options.quick = flags.quick;
  if (!flags.kernel.empty()) matching_kernels(flags.kernel);
  if (!flags.json.empty()) files::check_writable(flags.json);

  Table table;
  Counts total;
  std::vector<verify::CheckResult> results;
  {
    Progress progress;
    verify::run_checks(options, [&](const verify::CheckResult& result) {
      progress.show([&] { return fmt::format("{} cases, {}: {}", results.size(), result.kernel, result.name); });
      table.add(result);
      total.add(result.outcome);
      results.push_back(result);
    });
  }
  if (results.empty()) {
    throw UsageError(flags.family.empty()
                         ? std::string("no case: this build has no kernels")
                         : fmt::format("--family: no case is of family {}", files::in_quotes(flags.family)));
  }
  fmt::print("{}, {}; tilewise {}\n\n", cpu_model(), instruction_sets(), version());
  table.print();
  fmt::print("\n");
  for (const verify::CheckResult& result : results) {
    if (result.outcome != verify::Outcome::failed) continue;
    fmt::print("FAILED {} {} {} \"{}\"\n  {}\n  largest error {:.3g}, relative L2 error {:.3g}\n", result.kernel,
               result.family, name_of(result.dtype), result.name, result.detail, result.max_error, result.rel_l2_error);
  }
  if (!flags.json.empty()) write_json(flags.json, total, results);
  fmt::print("{} passed, {} failed, {} skipped\n", total.passed, total.failed, total.skipped);
  return total.failed > 0 ? data_error : ok;
}

}  // namespace

Subcommand add_check(CLI::App& parent) {
  const auto flags = std::make_shared<CheckFlags>();
  CLI::App* app = parent.add_subcommand("check", "prove every kernel against the float64 oracle");
  app->footer(check_examples);
  app->add_option("--device", flags->device, "cpu (default), cuda or metal")->type_name("D");
  app->add_option("--kernel", flags->kernel, "this kernel, or those whose names start so")->type_name("NAME");
  app->add_option("--family", flags->family, "cases of this family only: tails, band, lengths, ...")->type_name("F");
  app->add_flag("--quick", flags->quick, "leave out cases that take long");
  app->add_option("--json", flags->json, "also write every result as JSON")->type_name("FILE");
  return {app, [flags] { return run(*flags); }};
}

}  // namespace tilewise::cli
