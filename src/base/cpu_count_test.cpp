#include "base/cpu_count.h"

#include "base/testing.h"

#include <gtest/gtest.h>

namespace honeycrisp {
namespace {

class CpuCount : public testing::FakeRoot {
 protected:
  void allow(const std::string& list) {
    write("/proc/thread-self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t" + list);
  }
  // Eight CPUs, i and i + 4 being threads of one core.
  void hyper_threads() {
    for (int i = 0; i < 8; ++i)
      write("/sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list",
            std::to_string(i % 4) + "," + std::to_string(i % 4 + 4));
  }
};

TEST_F(CpuCount, without_any_file_there_is_at_least_one) { EXPECT_GE(usable_cores(root_), 1u); }

TEST_F(CpuCount, hyper_threads_of_a_core_count_once) {
  hyper_threads();
  allow("0-7");
  EXPECT_EQ(usable_cores(root_), 4u);
}

TEST_F(CpuCount, affinity_limits) {
  hyper_threads();
  allow("0-1,4,7");
  EXPECT_EQ(usable_cores(root_), 3u);
}

TEST_F(CpuCount, malformed_affinity_is_ignored) {
  for (const char* list : {"", "x", "3-1", "0-99999999999", "-4"}) {
    allow(list);
    EXPECT_GE(usable_cores(root_), 1u) << list;
    EXPECT_LE(usable_cores(root_), 1u << 16) << list;
  }
}

TEST_F(CpuCount, cgroup_2_quota_of_any_ancestor_limits) {
  allow("0-7");
  write("/proc/self/cgroup", "0::/slice/job");
  EXPECT_EQ(usable_cores(root_), 8u);
  write("/sys/fs/cgroup/slice/job/cpu.max", "max 100000");
  EXPECT_EQ(usable_cores(root_), 8u);
  write("/sys/fs/cgroup/slice/cpu.max", "350000 100000");
  EXPECT_EQ(usable_cores(root_), 3u);
  write("/sys/fs/cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(usable_cores(root_), 1u);
}

TEST_F(CpuCount, cgroup_1_quota_limits) {
  allow("0-7");
  write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(usable_cores(root_), 8u);
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000");  // the host's path does not exist inside a container
  EXPECT_EQ(usable_cores(root_), 2u);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "100000");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000");
  EXPECT_EQ(usable_cores(root_), 1u);
}

TEST_F(CpuCount, malformed_quotas_are_ignored) {
  allow("0-3");
  for (const char* group : {"0::/..", "no colons", "0:", "0::relative", ":::"}) {
    write("/proc/self/cgroup", group);
    for (const char* quota : {"", "x y", "1", "-5 100", "100 0", "99999999999999999999 1"}) {
      write("/sys/fs/cgroup/cpu.max", quota);
      EXPECT_EQ(usable_cores(root_), 4u) << group << " / " << quota;
    }
  }
}

}  // namespace
}  // namespace honeycrisp
