#include "cli/bench/other_load.h"

#include "base/testing.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace honeycrisp::cli {
namespace {

using OtherLoadTest = testing::FakeRoot;

TEST_F(OtherLoadTest, idle_and_waiting_are_not_busy_and_guests_count_once) {
  const double ticks = double(::sysconf(_SC_CLK_TCK));
  write("/proc/stat", "cpu  100 20 30 1000 50 1 2 3 40 5\ncpu0 1 2 3 4 5 6 7 8 9 10");
  const auto times = cpu_times(root_);
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->all * ticks, 1206);
  EXPECT_DOUBLE_EQ(times->busy * ticks, 156);
  EXPECT_GT(times->own, 0);
}

TEST_F(OtherLoadTest, other_files_tell_nothing) {
  EXPECT_FALSE(cpu_times(root_));
  for (const char* text : {"", "cpu", "cpu 1 2 3", "cpu 1 2 3 x 5 6 7 8", "intr 1 2 3 4 5 6 7 8 9"}) {
    write("/proc/stat", text);
    EXPECT_FALSE(cpu_times(root_)) << text;
  }
}

TEST(PercentOfOthers, is_what_this_process_did_not_take) {
  const CpuTimes before{.all = 100, .busy = 40, .own = 7};
  EXPECT_DOUBLE_EQ(percent_of_others(before, {.all = 104, .busy = 43, .own = 9}), 25);
  EXPECT_EQ(percent_of_others(before, before), 0);
  EXPECT_EQ(percent_of_others(before, {.all = 104, .busy = 41, .own = 9}), 0) << "ticks are coarser than our own time";
}

}  // namespace
}  // namespace honeycrisp::cli
