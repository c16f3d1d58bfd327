#include "command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "files/source.hpp"
#include "tilewise/attention.hpp"

namespace tilewise::cli {

CLI::Option* add_integer(CLI::App& app, const std::string& names, std::optional<std::int64_t>& target,
                         const std::string& help, std::int64_t lowest, std::int64_t highest) {
  const auto read = [&target, names, lowest, highest](const std::string& text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < lowest || value > highest) {
      throw CLI::ValidationError(
          fmt::format("{}: {} is not a whole number from {} to {}", names, files::in_quotes(text), lowest, highest));
    }
    target = value;
  };
  return app.add_option_function<std::string>(names, read, help)->type_name("N");
}

CLI::Option* add_number(CLI::App& app, const std::string& names, std::optional<double>& target,
                        const std::string& help) {
  const auto read = [&target, names](const std::string& text) {
    // strtod and not from_chars, which Apple's library lacks for floating point; the command never sets a locale.
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool blank = text.empty() || std::string_view(" \t\n\v\f\r").find(text[0]) != std::string_view::npos;
    if (blank || end != text.c_str() + text.size()) {
      throw CLI::ValidationError(fmt::format("{}: {} is not a number", names, files::in_quotes(text)));
    }
    target = value;
  };
  return app.add_option_function<std::string>(names, read, help)->type_name("X");
}

DType parse_dtype(std::string_view option, std::string_view text) {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
    if (text == name_of(dtype)) return dtype;
  }
  throw UsageError(fmt::format("{}: {} is not a dtype; expected float64, float32, float16 or bfloat16", option,
                               files::in_quotes(text)));
}

std::vector<std::string> matching_kernels(const std::string& text) {
  const std::vector<std::string> all = kernel_names();
  std::vector<std::string> matching;
  for (const std::string& name : all) {
    if (name == text) return {name};
    if (name.starts_with(text)) matching.push_back(name);
  }
  if (!matching.empty()) return matching;
  std::string known;
  for (const std::string& name : all) known += "\n  " + name;
  throw UsageError(fmt::format("--kernel: no kernel is named {} or starts so; there are{}", files::in_quotes(text),
                               known.empty() ? " none" : ":" + known));
}

DeviceKind parse_device(const std::string& text) {
  if (text == "cpu") return DeviceKind::cpu;
  if (text != "cuda" && text != "metal") {
    throw UsageError(fmt::format("--device: {} is not a device; expected cpu, cuda or metal", files::in_quotes(text)));
  }
  throw Unsupported(fmt::format("--device {}: this build runs on cpu only", text));
}

namespace {

struct Unit {
  double size;
  const char* name;
};

Unit unit_of(double seconds) {
  if (seconds >= 1) return {1, "s"};
  return seconds >= 1e-3 ? Unit{1e-3, "ms"} : Unit{1e-6, "us"};
}

std::string in_unit(double seconds, Unit unit) {
  const double value = seconds / unit.size;
  return fmt::format("{:.{}f}", value, value < 10 ? 3 : value < 100 ? 2 : 1);
}

}  // namespace

std::string duration_text(double seconds) {
  const Unit unit = unit_of(seconds);
  return in_unit(seconds, unit) + " " + unit.name;
}

std::string spread_text(double median, double least, double most) {
  const Unit unit = unit_of(median);
  return fmt::format("{} {} ({} - {})", in_unit(median, unit), unit.name, in_unit(least, unit), in_unit(most, unit));
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 4> units{"kB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{:.0f} bytes", bytes);
  std::size_t unit = 0;
  for (bytes /= 1000; bytes >= 1000 && unit + 1 < units.size(); ++unit) bytes /= 1000;
  return fmt::format("{:.2f} {}", bytes, units[unit]);
}

}  // namespace tilewise::cli
