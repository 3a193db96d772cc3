#include "engine/plan_memory.h"

#include <gtest/gtest.h>

namespace honeycrisp::engine {
namespace {

TEST(OverDevice, says_both_numbers_if_the_device_should_not_hold_so_much) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(over_device({.device_bytes = 3 * kGiB}, 3 * kGiB), "");
  EXPECT_EQ(over_device({.device_bytes = 3 * kGiB}, 3 * kGiB + kGiB / 2),
            "weights, the cache of one session and activations take 3.5 GiB, and the GPU should not hold more than 3.0 "
            "GiB at once: it runs, but the system moves memory in and out (lower the context, or take a smaller "
            "quantization)");
  EXPECT_EQ(over_device({.device_bytes = 0}, UINT64_MAX), "") << "no limit is known";
}

}  // namespace
}  // namespace honeycrisp::engine
