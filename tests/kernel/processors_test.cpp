#include "kernel/processors.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace tilewise {
namespace {

// A file system of its own with /proc/self and cgroup directories.
class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() /
            (std::string("tilewise_cgroup_") + test->name() + "_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void version_2(const std::string& group, const std::string& mounted = "/") {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo", "22 1 0:20 / /proc rw,nosuid - proc proc rw\n30 23 0:26 " + mounted +
                                      " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void version_1(const std::string& group, const std::string& mounted = "/") {
    write("/proc/self/cgroup", "5:memory:/elsewhere\n4:cpu,cpuacct:" + group + "\n1:name=systemd:/\n");
    write("/proc/self/mountinfo",
          "31 25 0:27 / /sys/fs/cgroup/cpuset rw shared:10 - cgroup cgroup rw,cpuset\n32 25 0:28 " + mounted +
              " /sys/fs/cgroup/cpu,cpuacct rw shared:10 shared:11 - cgroup cgroup rw,cpu,cpuacct\n");
  }
  [[nodiscard]] int limit() const { return cgroup_processors(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST_F(CgroupTest, NothingThere) { EXPECT_EQ(limit(), 0); }

TEST_F(CgroupTest, Version2Quota) {
  version_2("/app");
  write("/sys/fs/cgroup/app/cpu.max", "300000 100000\n");
  EXPECT_EQ(limit(), 3);
}

TEST_F(CgroupTest, Version2WithoutQuota) {
  version_2("/app");
  write("/sys/fs/cgroup/app/cpu.max", "max 100000\n");
  EXPECT_EQ(limit(), 0);
}

TEST_F(CgroupTest, FractionsAreRoundedUp) {
  version_2("/app");
  write("/sys/fs/cgroup/app/cpu.max", "150000 100000\n");
  EXPECT_EQ(limit(), 2);
  write("/sys/fs/cgroup/app/cpu.max", "20000 100000\n");
  EXPECT_EQ(limit(), 1);
}

TEST_F(CgroupTest, AncestorsBindAsWell) {
  version_2("/slice/pod/app");
  write("/sys/fs/cgroup/slice/pod/app/cpu.max", "800000 100000\n");
  write("/sys/fs/cgroup/slice/pod/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/slice/cpu.max", "200000 100000\n");
  EXPECT_EQ(limit(), 2);
}

TEST_F(CgroupTest, RootOfANamespace) {
  version_2("/");
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(limit(), 4);
}

TEST_F(CgroupTest, Version1Quota) {
  version_1("/jobs/7");
  write("/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "250000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit(), 3);
}

TEST_F(CgroupTest, Version1InAContainerCountsFromTheMountedDirectory) {
  version_1("/docker/abc", "/docker/abc");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(limit(), 2);
}

TEST_F(CgroupTest, NonsenseIsNoLimit) {
  version_2("/app");
  for (const char* text : {"", "x y", "100000", "100000 0", "-5 100000", "0 100000"}) {
    write("/sys/fs/cgroup/app/cpu.max", text);
    EXPECT_EQ(limit(), 0) << text;
  }
  write("/proc/self/mountinfo", "30 23\n\n - - - -\n");
  EXPECT_EQ(limit(), 0);
}

TEST(Processors, AtLeastOne) { EXPECT_GE(available_processors(), 1); }

TEST(ThreadsFromEnvironment, Values) {
  EXPECT_EQ(threads_from_environment(nullptr, 8), 0);
  EXPECT_EQ(threads_from_environment("", 8), 0);
  EXPECT_EQ(threads_from_environment("1", 8), 1);
  EXPECT_EQ(threads_from_environment("8", 8), 8);
  for (const char* value : {"9", "0", "-1", "+3", "3 ", "0x2", "four"}) {
    EXPECT_THROW(threads_from_environment(value, 8), std::invalid_argument) << value;
  }
}

}  // namespace
}  // namespace tilewise
