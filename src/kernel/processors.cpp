#include "kernel/processors.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace tilewise {
namespace {

int affinity_processors() {
#if defined(__linux__)
  // The kernel refuses a mask that is smaller than its own, which may exceed the 1024 processors of a plain cpu_set_t.
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    if (sched_getaffinity(0, sets * sizeof(cpu_set_t), mask.data()) == 0) {
      return CPU_COUNT_S(sets * sizeof(cpu_set_t), mask.data());
    }
  }
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

// One line of /proc/self/mountinfo, "id parent major:minor root mountpoint options [tags] - type source superoptions".
struct Mount {
  std::string root;   // which directory of the hierarchy is mounted
  std::string point;  // where
  std::string type;
  std::string options;
};

std::optional<Mount> parse_mount(const std::string& line) {
  Mount mount;
  std::string skipped;
  std::istringstream words(line);
  words >> skipped >> skipped >> skipped >> mount.root >> mount.point;
  while (words >> skipped && skipped != "-") {
  }
  words >> mount.type >> skipped >> mount.options;
  if (!words) return std::nullopt;
  return mount;
}

bool has_item(const std::string& comma_list, const std::string& item) {
  return ("," + comma_list + ",").find("," + item + ",") != std::string::npos;
}

// Our directory in a hierarchy: "0::/path" for v2, "4:cpu,cpuacct:/path" for v1.
std::optional<std::string> own_group(const std::string& root, bool version_2) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version_2 ? controllers.empty() : has_item(controllers, "cpu")) return line.substr(second + 1);
  }
  return std::nullopt;
}

// Processors granted by one directory, as a fraction; negative if it sets no limit.
double quota_of(const std::string& directory, bool version_2) {
  double quota = -1;
  double period = 0;
  if (version_2) {
    std::ifstream file(directory + "/cpu.max");  // "max 100000" or "150000 100000"
    if (!(file >> quota >> period)) return -1;
  } else {
    std::ifstream quota_file(directory + "/cpu.cfs_quota_us");  // -1: none
    std::ifstream period_file(directory + "/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return -1;
  }
  return quota > 0 && period > 0 ? quota / period : -1;
}

}  // namespace

int cgroup_processors(const std::string& root) {
  double least = -1;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::optional<Mount> mount = parse_mount(line);
    if (!mount) continue;
    const bool version_2 = mount->type == "cgroup2";
    if (!version_2 && !(mount->type == "cgroup" && has_item(mount->options, "cpu"))) continue;
    std::string group = own_group(root, version_2).value_or("/");
    // A container sees its own directory mounted, while its name may still count from the host's root.
    if (mount->root != "/" && group.starts_with(mount->root)) group.erase(0, mount->root.size());
    while (true) {  // a quota anywhere above us binds as well
      while (!group.empty() && group.back() == '/') group.pop_back();
      const double quota = quota_of(root + mount->point + group, version_2);
      if (quota > 0 && (least < 0 || quota < least)) least = quota;
      if (group.empty()) break;
      group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
  }
  // Rounded up: a second thread on 1.5 processors is throttled now and then, but one thread would never use the half.
  return least < 0 ? 0 : static_cast<int>(std::ceil(std::min(least, 1e6)));
}

int available_processors() {
  int count = std::max(1, affinity_processors());
  const int quota = cgroup_processors("");
  if (quota > 0) count = std::min(count, quota);
  return count;
}

int threads_from_environment(const char* value, int limit) {
  if (value == nullptr || *value == '\0') return 0;
  int count = 0;
  const char* end = value + std::strlen(value);
  const auto [stop, error] = std::from_chars(value, end, count);
  if (error != std::errc() || stop != end || count < 1 || count > limit) {
    throw std::invalid_argument("TILEWISE_NUM_THREADS: '" + std::string(value) +
                                "' is not a number of threads from 1 to " + std::to_string(limit));
  }
  return count;
}

}  // namespace tilewise
