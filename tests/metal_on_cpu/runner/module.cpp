#include "module.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

extern "C" {
// Read by the kernel's global initialisers when the object is loaded.
long tw_runtime_constants[16];
}

namespace tilewise::metal_bench {
namespace {

namespace fs = std::filesystem;

const char* const bench_dir = TW_BENCH_DIR;  // tests/metal_on_cpu
const char* const src_dir = TW_SRC_DIR;      // src
const char* const cache_dir = TW_CACHE_DIR;
constexpr std::size_t max_runtime_constants = 16;

struct Ran {
  int status;
  std::string output;
};

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Ran shell(const std::string& command) {
  std::FILE* const pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) throw BenchError("cannot start a shell");
  Ran ran{0, {}};
  std::array<char, 4096> block{};
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), pipe)) ran.output.append(block.data(), n);
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return ran;
}

std::uint64_t hash(const std::string& text, std::uint64_t h = 0xcbf29ce484222325ULL) {
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw BenchError("cannot read " + path.string());
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Of the bench's own headers and scripts and of every header that a kernel could include.
std::uint64_t environment_hash() {
  static const std::uint64_t value = [] {
    std::vector<fs::path> files{fs::path(bench_dir) / "translate.py", fs::path(src_dir) / "metal" / "flatten.py"};
    for (const fs::path& root : {fs::path(bench_dir) / "include", fs::path(bench_dir) / "lint",
                                 fs::path(src_dir) / "core", fs::path(src_dir) / "metal"}) {
      if (!fs::exists(root)) continue;
      for (const auto& entry : fs::recursive_directory_iterator(root)) {
        if (entry.is_regular_file() && entry.path().extension() != ".pyc" && entry.path().extension() != ".cpp")
          files.push_back(entry.path());
      }
    }
    std::ranges::sort(files);
    std::uint64_t h = hash("");
    for (const fs::path& file : files) h = hash(content(file), hash(file.string(), h));
    return h;
  }();
  return value;
}

std::string hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::string translate_command(const Launch& launch, const std::string& outputs) {
  std::string command = "python3 " + quoted(std::string(bench_dir) + "/translate.py") + " " + quoted(launch.source) +
                        " --include " + quoted(src_dir);
  for (const auto& [name, value] : launch.constants) command += " --define " + quoted(name + "=" + value);
  for (std::size_t i = 0; i < launch.runtime_constants.size(); ++i) {
    command += " --runtime " + quoted(launch.runtime_constants[i].first + "=" + std::to_string(i));
  }
  return command + outputs;
}

void add_lines(const std::string& text, const std::string& kind, std::vector<Finding>& findings) {
  std::istringstream in(text);
  const std::size_t before = findings.size();
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) findings.push_back({kind, line});
  }
  if (findings.size() == before) findings.push_back({kind, "failed without a message"});
}

// What one compilation depends on.
std::string key_of(const Launch& launch, const std::string& flags) {
  std::string text = launch.source + '\n' + content(launch.source) + '\n' + flags;
  for (const auto& [name, value] : launch.constants) text += '\n' + name + '=' + value;
  for (const auto& [name, value] : launch.runtime_constants) text += '\n' + name;
  return hex(hash(text, environment_hash()));
}

std::string flags_of(Mode mode) {
  std::string flags =
      "-std=c++20 -gline-tables-only -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -ffp-contract=off "
      "-fno-strict-aliasing -fno-vectorize -fno-slp-vectorize -Werror=return-type -Wno-unknown-attributes "
      "-Wno-deprecated-copy -DTW_METAL_ON_CPU -D__METAL_VERSION__=310";
  if (__builtin_cpu_supports("fma")) flags += " -mfma";  // else libm's, slower
  if (mode == Mode::plain) return flags + " -O2";
  flags +=
      " -O1 -fsanitize=thread -mllvm -tsan-instrument-func-entry-exit=0 -mllvm -tsan-instrument-read-before-write=1";
  if (mode == Mode::checked) {
    return flags +
           " -fsanitize=array-bounds,alignment,shift,integer-divide-by-zero,signed-integer-overflow,"
           "float-cast-overflow,bool";
  }
  return flags + " -DTW_COUNTING";
}

}  // namespace

std::string build_module(const Launch& launch, Mode mode, std::vector<Finding>& findings) {
  if (launch.runtime_constants.size() > max_runtime_constants) throw BenchError("too many runtime constants");
  const std::string flags = flags_of(mode);
  const fs::path stem = fs::path(cache_dir) / key_of(launch, flags);
  const std::string object = stem.string() + ".so";
  const std::string failure = stem.string() + ".failed";
  if (fs::exists(object)) return object;
  if (fs::exists(failure)) {
    const std::string text = content(failure);
    add_lines(text.substr(text.find('\n') + 1), text.substr(0, text.find('\n')), findings);
    return {};
  }
  fs::create_directories(cache_dir);
  const std::string unique = stem.string() + "." + std::to_string(getpid());
  const std::string cpp = unique + ".cpp";
  const auto fail = [&](const std::string& kind, const std::string& text) {
    std::ofstream(unique + ".failed") << kind << '\n' << text;
    fs::rename(unique + ".failed", failure);
    add_lines(text, kind, findings);
    return std::string();
  };
  const Ran translated = shell(translate_command(launch, " --cpp " + quoted(cpp)));
  if (translated.status == 3) return fail("subset", translated.output);
  if (translated.status != 0) return fail("compile", translated.output);
  const Ran compiled =
      shell("clang++-19 " + flags + " -ferror-limit=5 -fno-caret-diagnostics -I" +
            quoted(std::string(bench_dir) + "/include") + " -c " + quoted(cpp) + " -o " + quoted(unique + ".o") +
            " && clang++-19 -shared -o " + quoted(unique + ".so") + " " + quoted(unique + ".o") + " -lm");
  if (compiled.status != 0) return fail("compile", compiled.output);
  fs::remove(unique + ".o");
  fs::rename(cpp, stem.string() + ".cpp");
  fs::rename(unique + ".so", object);
  return object;
}

std::vector<Finding> lint(const Launch& launch) {
  std::vector<Finding> findings;
  fs::create_directories(cache_dir);
  const std::string stem = (fs::path(cache_dir) / ("lint." + std::to_string(getpid()))).string();
  const Ran translated =
      shell(translate_command(launch, " --cpp " + quoted(stem + ".cpp") + " --lint " + quoted(stem + ".lint.cpp")));
  if (translated.status != 0) {
    add_lines(translated.output, translated.status == 3 ? "subset" : "compile", findings);
  } else {
    const Ran checked = shell(
        "clang++-19 -std=c++14 -fsyntax-only -ferror-limit=20 -fno-caret-diagnostics -Wno-unknown-attributes "
        "-Wno-c++17-extensions -Werror=old-style-cast -Werror=comma -Werror=unused-value -Werror=narrowing -I" +
        quoted(std::string(bench_dir) + "/lint") + " " + quoted(stem + ".lint.cpp"));
    if (checked.status != 0) add_lines(checked.output, "lint", findings);
    fs::remove(stem + ".lint.cpp");
  }
  fs::remove(stem + ".cpp");
  return findings;
}

Module::Module(const std::string& path, const Launch& launch) : path_(path) {
  for (std::size_t i = 0; i < launch.runtime_constants.size(); ++i) {
    tw_runtime_constants[i] = launch.runtime_constants[i].second;
  }
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) throw BenchError(dlerror());
  if (auto* const address = reinterpret_cast<TwCounts* (*)()>(dlsym(handle_, "tw_counts_address"))) counts_ = address();
  const link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) throw BenchError(dlerror());
  base_ = map->l_addr;
  struct Search {
    std::uintptr_t base;
    std::uintptr_t end;
  } search{base_, base_};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        if (info->dlpi_addr != wanted.base) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = info->dlpi_phdr[i];
          if (header.p_type == PT_LOAD)
            wanted.end = std::max(wanted.end, wanted.base + header.p_vaddr + header.p_memsz);
        }
        return 1;
      },
      &search);
  end_ = search.end;
}

Module::~Module() { dlclose(handle_); }

const TwEntry* Module::find(const std::string& function) const {
  const auto* const entries = static_cast<const TwEntry*>(dlsym(handle_, "tw_entries"));
  const auto* const count = static_cast<const int*>(dlsym(handle_, "tw_entry_count"));
  if (entries == nullptr || count == nullptr) throw BenchError(path_ + " has no entry table");
  for (int i = 0; i < *count; ++i) {
    if (function == entries[i].name) return &entries[i];
  }
  return nullptr;
}

std::vector<std::string> Module::lines_of(const std::vector<std::uintptr_t>& return_addresses) const {
  static std::map<std::string, std::string> known;  // starting the symbolizer costs more than a small launch
  const auto key = [&](std::uintptr_t address) { return path_ + "@" + std::to_string(address - base_); };
  std::vector<std::uintptr_t> unknown;
  std::ostringstream command;
  command << "llvm-symbolizer-19 --inlining --functions=none --obj=" << quoted(path_) << std::hex;
  for (const std::uintptr_t address : return_addresses) {
    if (!contains(address) || known.contains(key(address)) || std::ranges::find(unknown, address) != unknown.end()) {
      continue;
    }
    unknown.push_back(address);
    command << " 0x" << address - 1 - base_;
  }
  if (!unknown.empty()) {
    // For each address a line per frame, from the innermost outwards, and an empty line. The kernel's own frame is the
    // first that is not one of the bench's headers.
    std::istringstream in(shell(command.str()).output);
    for (const std::uintptr_t address : unknown) {
      std::string own;
      for (std::string line; std::getline(in, line) && !line.empty();) {
        if (own.empty() || own.find("metal_on_cpu/include") != std::string::npos) own = line;
      }
      if (const auto column = own.rfind(':'); column != std::string::npos) own.resize(column);
      if (const auto slash = own.rfind('/'); slash != std::string::npos) own.erase(0, slash + 1);
      known[key(address)] = own;
    }
  }
  std::vector<std::string> lines;
  for (const std::uintptr_t address : return_addresses) {
    lines.push_back(contains(address) ? known[key(address)] : "the bench");
  }
  return lines;
}

}  // namespace tilewise::metal_bench
