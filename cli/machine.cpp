#include "machine.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <utility>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "cpu/isa.hpp"
#include "kernel/kernel.hpp"
#include "kernel/parallel.hpp"
#include "tilewise/attention.hpp"

namespace tilewise::cli {

std::string cpu_model() {
#ifdef __APPLE__
  std::array<char, 256> name{};
  std::size_t size = name.size() - 1;
  if (::sysctlbyname("machdep.cpu.brand_string", name.data(), &size, nullptr, 0) == 0) return name.data();
#else
  // x86 says "model name"; Arm kernels give only a part number.
  std::ifstream info("/proc/cpuinfo");
  std::string part;
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) return line.substr(colon + 2);
    if (line.starts_with("CPU part")) part = "Arm part " + line.substr(colon + 2);
  }
  if (!part.empty()) return part;
#endif
  return "unknown";
}

std::string instruction_sets() {
  constexpr std::array<std::pair<std::uint32_t, const char*>, 5> names{{{isa::sse4, "sse4"},
                                                                        {isa::avx2, "avx2"},
                                                                        {isa::avx512, "avx512"},
                                                                        {isa::amx_bf16, "amx_bf16"},
                                                                        {isa::neon, "neon"}}};
  const std::uint32_t features = cpu::cpu_features();
  std::string text;
  for (const auto& [bit, name] : names) {
    if ((features & bit) == 0) continue;
    if (!text.empty()) text += ' ';
    text += name;
  }
  return text;
}

std::string compiler() { return TILEWISE_COMPILER; }

double physical_memory() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

int default_threads() { return default_pool(0)->workers; }

std::string timestamp() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

nlohmann::ordered_json machine_json() {
  return {{"cpu", cpu_model()},     {"isa", instruction_sets()}, {"gpu", nullptr},
          {"compiler", compiler()}, {"version", version()},      {"date", timestamp()}};
}

}  // namespace tilewise::cli
