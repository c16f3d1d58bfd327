#pragma once

// What the subcommands share: how they are added, how they fail, how they print.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tilewise/types.hpp"

namespace tilewise::cli {

// Exit codes.
inline constexpr int ok = 0;
inline constexpr int data_error = 1;   // a file, a tensor, a failed check: the command was understood
inline constexpr int usage_error = 2;  // the command line itself

// A command line that cannot be right, whatever the data.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Subcommand {
  CLI::App* app;
  std::function<int()> run;  // after parsing; returns an exit code
};

Subcommand add_run(CLI::App& parent);
Subcommand add_explain(CLI::App& parent);
Subcommand add_info(CLI::App& parent);
Subcommand add_check(CLI::App& parent);
Subcommand add_bench(CLI::App& parent);

// Options that read whole numbers strictly: decimal, nothing else on the word, inside [lowest, highest].
CLI::Option* add_integer(CLI::App& app, const std::string& names, std::optional<std::int64_t>& target,
                         const std::string& help, std::int64_t lowest, std::int64_t highest);
// Decimal or exponent notation; "nan" and "inf" are read, for the caller to judge.
CLI::Option* add_number(CLI::App& app, const std::string& names, std::optional<double>& target,
                        const std::string& help);

// The dtype named "float32", "float16", "bfloat16" or "float64". Throws UsageError that names `option`.
DType parse_dtype(std::string_view option, std::string_view text);

// All kernels whose name is `text` or starts with it. Throws UsageError that lists the kernels when there is none.
std::vector<std::string> matching_kernels(const std::string& text);

// The device named on the command line. Throws UsageError for an unknown name and Unsupported for one that has no
// kernels in this build.
DeviceKind parse_device(const std::string& text);

// "1.5 us", "12.3 ms", "4.56 s"
std::string duration_text(double seconds);

// "12.3 ms (12.1 - 13.0)"
std::string spread_text(double median, double least, double most);

// "12 bytes", "1.50 MB"; powers of 1000.
std::string bytes_text(double bytes);

}  // namespace tilewise::cli
