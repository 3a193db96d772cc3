#include "base/checked.h"

#include <gtest/gtest.h>
#include <limits>

namespace honeycrisp {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(Checked, add_and_mul_give_nothing_on_overflow) {
  EXPECT_EQ(checked_add<uint64_t>(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add<uint64_t>(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_mul<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 31), uint64_t{1} << 63);
  EXPECT_EQ(checked_mul<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(checked_mul<uint64_t>(kMax, 0), 0u);
  EXPECT_EQ(checked_add<int32_t>(std::numeric_limits<int32_t>::min(), -1), std::nullopt);
  EXPECT_EQ(checked_mul<int32_t>(-65536, 65536), std::nullopt);
}

TEST(Checked, ceil_div_and_round_up) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(1, 4), 1);
  EXPECT_EQ(ceil_div(4, 4), 1);
  EXPECT_EQ(round_up(5, 4), 8);
  EXPECT_EQ(round_up<uint64_t>(64, 32), 64u);
  EXPECT_EQ(ceil_div<uint64_t>(kMax, 2), uint64_t{1} << 63) << "the sum inside must not wrap";
}

}  // namespace
}  // namespace honeycrisp
