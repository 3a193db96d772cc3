#include "backend/cpu/rope_tables.h"

#include <cmath>
#include <gtest/gtest.h>

namespace honeycrisp::backend::cpu {
namespace {

TEST(RopeTables, rotate_by_position_times_frequency) {
  program::Program p;
  p.ropes.push_back({.interleaved = true, .inverse_frequency = {1.0, 0.01}, .magnitude = 2.0});
  p.ropes.push_back({.interleaved = false, .pair_distance = 3, .inverse_frequency = {1.0, 0.01}});
  RopeTables tables(p);
  tables.reserve(10);
  tables.reserve(1000);  // grows, keeps what there is
  for (uint32_t position : {0u, 1u, 9u, 255u, 256u, 999u}) {
    float x[6] = {1, 2, 3, 4, 5, 6};
    tables.rotate(0, position, x);
    const double c = std::cos(position * 0.01), s = std::sin(position * 0.01);
    EXPECT_NEAR(x[2], 2 * (3 * c - 4 * s), 1e-5);
    EXPECT_NEAR(x[3], 2 * (3 * s + 4 * c), 1e-5);
    EXPECT_EQ(x[4], 5);
    float y[6] = {1, 2, 3, 4, 5, 6};
    tables.rotate(1, position, y);
    EXPECT_NEAR(y[1], 2 * c - 5 * s, 1e-5);
    EXPECT_NEAR(y[4], 2 * s + 5 * c, 1e-5);
    EXPECT_EQ(y[2], 3);
  }
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
