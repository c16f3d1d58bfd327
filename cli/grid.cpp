#include "grid.hpp"

#include <fmt/format.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "core/index_map.h"
#include "core/tile_range.h"
#include "files/source.hpp"

namespace tilewise::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t largest_grid_file = 16 << 20;
constexpr std::size_t most_problems = 100000;

// One problem's fields, all scalar by now, and the message context.
class FieldReader {
 public:
  FieldReader(const std::string& source, const std::string& name) : source_(source), name_(name) {}

  [[noreturn]] void fail(const std::string& field, const std::string& expected) const {
    throw files::FileError(fmt::format("{}: problem {}: {}: expected {}", source_, files::in_quotes(name_),
                                       files::in_quotes(field), expected));
  }
  std::int64_t integer(const std::string& field, const Json& value, std::int64_t lowest) const {
    const bool is_signed = value.is_number_integer() && !value.is_number_unsigned();
    const bool fits = is_signed || (value.is_number_unsigned() && value.get<std::uint64_t>() <= INT64_MAX);
    if (!fits || value.get<std::int64_t>() < lowest) fail(field, fmt::format("a whole number from {} on", lowest));
    return value.get<std::int64_t>();
  }
  double number(const std::string& field, const Json& value) const {
    if (!value.is_number()) fail(field, "a number");
    return value.get<double>();
  }
  bool boolean(const std::string& field, const Json& value) const {
    if (!value.is_boolean()) fail(field, "true or false");
    return value.get<bool>();
  }
  std::string string(const std::string& field, const Json& value) const {
    if (!value.is_string()) fail(field, "a string");
    return value.get<std::string>();
  }

 private:
  const std::string& source_;
  const std::string& name_;
};

GridProblem problem_of(const Json& fields, const std::string& name, bool backward, const std::string& source) {
  const FieldReader read(source, name);
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::min();
  GridProblem problem;
  problem.name = name;
  problem.backward = backward;
  bool has_dv = false;
  for (const auto& [field, value] : fields.items()) {
    const auto size = [&] { return read.integer(field, value, 1); };
    if (field == "name")
      continue;
    else if (field == "B")
      problem.batch = size();
    else if (field == "H")
      problem.q_heads = problem.kv_heads = size();
    else if (field == "Hq")
      problem.q_heads = size();
    else if (field == "Hkv")
      problem.kv_heads = size();
    else if (field == "S")
      problem.q_len = problem.kv_len = size();
    else if (field == "Sq")
      problem.q_len = size();
    else if (field == "Sk")
      problem.kv_len = size();
    else if (field == "D")
      problem.head_dim = size();
    else if (field == "Dv")
      problem.v_dim = size(), has_dv = true;
    else if (field == "dtype")
      problem.dtype = parse_dtype(source + ": dtype", read.string(field, value));
    else if (field == "pass")
      problem.backward = read.string(field, value) == "backward";
    else if (field == "causal") {
      if (read.boolean(field, value)) problem.right = 0;
    } else if (field == "window")
      problem.left = size() - 1, problem.right = 0;
    else if (field == "left")
      problem.left = read.integer(field, value, any);
    else if (field == "right")
      problem.right = read.integer(field, value, any);
    else if (field == "scale")
      problem.scale = read.number(field, value);
    else if (field == "softcap")
      problem.softcap = read.number(field, value);
    else if (field == "sinks")
      problem.sinks = read.boolean(field, value);
    else if (field == "bias")
      problem.bias = read.boolean(field, value);
    else if (field == "shared_bias")
      problem.bias = problem.shared_bias = read.boolean(field, value);
    else if (field == "key_mask")
      problem.key_mask = read.boolean(field, value);
    else if (field == "fused")
      problem.fused = read.boolean(field, value);
    else if (field == "ragged")
      problem.ragged = read.boolean(field, value);
    else if (field == "alignment") {
      const std::string corner = read.string(field, value);
      if (corner != "top_left" && corner != "bottom_right") read.fail(field, "top_left or bottom_right");
      problem.alignment = corner == "top_left" ? Alignment::top_left : Alignment::bottom_right;
    } else
      read.fail(field, "no such field");
  }
  if (!has_dv) problem.v_dim = problem.head_dim;
  if (problem.q_heads % problem.kv_heads != 0) read.fail("Hq", "a multiple of Hkv");
  if (problem.fused && (problem.q_heads != problem.kv_heads || problem.q_len != problem.kv_len || has_dv)) {
    read.fail("fused", "false unless Hq = Hkv, Sq = Sk and Dv is left out");
  }
  const bool banded = problem.left || problem.right;
  if (banded && !problem.alignment && (problem.q_len != problem.kv_len || problem.ragged)) {
    problem.alignment = Alignment::bottom_right;
  }
  return problem;
}

std::string value_name(const std::string& field, const Json& value) {
  if (field == "causal") return value == true ? "causal" : "full";
  if (value.is_string()) return value.get<std::string>();
  return field + value.dump();
}

// Replaces the first list by each of its values in turn, and goes on with the lists after it.
void expand(Json entry, const std::string& name, bool backward, const std::string& source,
            std::vector<GridProblem>& out) {
  for (auto& [field, value] : entry.items()) {
    if (!value.is_array()) continue;
    const Json values = value;
    for (const Json& one : values) {
      if (one.is_structured()) throw files::FileError(source + ": lists hold plain values only");
      value = one;
      expand(entry, name.empty() ? value_name(field, one) : name + " " + value_name(field, one), backward, source, out);
    }
    return;
  }
  if (out.size() >= most_problems)
    throw files::FileError(fmt::format("{}: more than {} problems", source, most_problems));
  out.push_back(problem_of(entry, name, backward, source));
}

std::string read_text(const std::string& path) {
  const files::FileSource file(path);
  if (file.size() > largest_grid_file)
    file.fail(fmt::format("a grid file of {} bytes; expected at most {}", file.size(), largest_grid_file));
  std::string text(file.size(), ' ');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

fs::path executable_folder() {
  std::error_code error;
#ifdef __APPLE__
  std::string path(4096, '\0');
  auto size = static_cast<std::uint32_t>(path.size());
  if (_NSGetExecutablePath(path.data(), &size) != 0) return {};
  return fs::canonical(path.c_str(), error).parent_path();
#else
  return fs::read_symlink("/proc/self/exe", error).parent_path();
#endif
}

std::vector<fs::path> grid_folders(const std::string& folder) {
  if (!folder.empty()) return {folder};
  return {executable_folder() / "../share/tilewise/grids", TILEWISE_SOURCE_GRIDS};
}

}  // namespace

Grid parse_grid(const std::string& text, const std::string& source) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw files::FileError(source + ": is not valid JSON");
  if (!json.is_object() || !json.contains("problems") || !json["problems"].is_array()) {
    throw files::FileError(source + ": expected an object with a list of problems");
  }
  if (json.value("schema", Json()) != 1) throw files::FileError(source + ": expected \"schema\": 1");
  Grid grid{.name = json.value("name", ""), .problems = {}};
  const bool backward = json.value("pass", "forward") == "backward";
  for (const Json& entry : json["problems"]) {
    if (!entry.is_object()) throw files::FileError(source + ": a problem must be an object");
    const Json name = entry.value("name", Json(""));
    if (!name.is_string()) throw files::FileError(source + ": a problem's name must be a string");
    expand(entry, name.get<std::string>(), backward, source, grid.problems);
  }
  return grid;
}

Grid load_grid(const std::string& name, const std::string& folder) {
  if (name.ends_with(".json") || name.find('/') != std::string::npos) return parse_grid(read_text(name), name);
  std::vector<std::string> known;
  for (const fs::path& place : grid_folders(folder)) {
    const fs::path path = place / (name + ".json");
    std::error_code error;
    if (fs::exists(path, error)) return parse_grid(read_text(path.string()), path.string());
    for (const auto& entry : fs::directory_iterator(place, error)) {
      if (entry.path().extension() == ".json") known.push_back(entry.path().stem().string());
    }
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  throw UsageError(fmt::format("--grid: no grid is named {}; expected a file.json{}{}", files::in_quotes(name),
                               known.empty() ? "" : " or one of ", fmt::join(known, ", ")));
}

double forward_flops(const GridProblem& problem) {
  const core::Corner corner =
      problem.alignment == Alignment::bottom_right ? core::corner_bottom_right : core::corner_top_left;
  const core::Band band =
      core::band_of(problem.left.has_value(), problem.left.value_or(0), problem.right.has_value(),
                    problem.right.value_or(0), core::band_delta(corner, 0, problem.q_len, problem.kv_len));
  return 2 * static_cast<double>(problem.head_dim + problem.v_dim) * static_cast<double>(problem.batch) *
         static_cast<double>(problem.q_heads) *
         static_cast<double>(core::visible_pairs(band, problem.q_len, problem.kv_len));
}

void shrink(GridProblem& problem, double most) {
  std::int64_t factor = 1;
  while (forward_flops(problem) > most && (problem.q_len > 1 || problem.kv_len > 1)) {
    problem.q_len = std::max<std::int64_t>(1, problem.q_len / 2);
    problem.kv_len = std::max<std::int64_t>(1, problem.kv_len / 2);
    factor *= 2;
  }
  if (factor > 1) problem.name += fmt::format(" S/{}", factor);
}

}  // namespace tilewise::cli
