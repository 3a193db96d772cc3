#include "base/memory_size.h"

#include "base/testing.h"

#include <gtest/gtest.h>

namespace honeycrisp {
namespace {

using MemorySize = testing::FakeRoot;

TEST_F(MemorySize, without_any_group_it_is_the_machine_s) {
  EXPECT_GT(usable_memory(root_), uint64_t{16} << 20);
  EXPECT_LE(usable_memory(), usable_memory(root_));
}

TEST_F(MemorySize, limit_2_of_any_ancestor_holds) {
  const uint64_t machine = usable_memory(root_);
  write("/proc/self/cgroup", "0::/slice/job");
  write("/sys/fs/cgroup/slice/job/memory.max", "max");
  EXPECT_EQ(usable_memory(root_), machine);
  write("/sys/fs/cgroup/slice/job/memory.max", "9000000");
  EXPECT_EQ(usable_memory(root_), 9'000'000u);
  write("/sys/fs/cgroup/memory.max", "8000000");
  EXPECT_EQ(usable_memory(root_), 8'000'000u);
}

TEST_F(MemorySize, limit_1_holds_and_none_of_its_is_huge) {
  const uint64_t machine = usable_memory(root_);
  write("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n");
  write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712");
  write("/sys/fs/cgroup/cpu/memory.limit_in_bytes", "5");
  EXPECT_EQ(usable_memory(root_), machine);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000000");  // the host's path does not exist in a container
  EXPECT_EQ(usable_memory(root_), 7'000'000u);
}

TEST_F(MemorySize, malformed_limits_are_ignored) {
  const uint64_t machine = usable_memory(root_);
  write("/proc/self/cgroup", "0::/");
  for (const char* limit : {"", "x", "-1", "0", "12 34", "99999999999999999999"}) {
    write("/sys/fs/cgroup/memory.max", limit);
    EXPECT_EQ(usable_memory(root_), machine) << limit;
  }
}

}  // namespace
}  // namespace honeycrisp
