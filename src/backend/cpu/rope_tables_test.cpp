#include "backend/cpu/rope_tables.h"

#include "backend/cpu/testing.h"

#include <cmath>

namespace honeycrisp::backend::cpu {
namespace {

TEST(RopeTables, rotate_by_position_times_frequency) {
  program::Program p;
  p.ropes.push_back({.interleaved = true, .inverse_frequency = {1.0, 0.01}, .magnitude = 2.0});
  p.ropes.push_back({.interleaved = false, .pair_distance = 3, .inverse_frequency = {1.0, 0.01}});
  RopeTables tables(p);
  tables.reserve(10);
  tables.reserve(1000);  // grows, keeps what there is
  for (const Isa* isa : available_isas())
    for (uint32_t position : {0u, 1u, 9u, 255u, 256u, 999u}) {
      float x[6] = {1, 2, 3, 4, 5, 6};
      tables.rotate(*isa, 0, position, x);
      const double c = std::cos(position * 0.01), s = std::sin(position * 0.01);
      EXPECT_NEAR(x[2], 2 * (3 * c - 4 * s), 1e-5);
      EXPECT_NEAR(x[3], 2 * (3 * s + 4 * c), 1e-5);
      EXPECT_EQ(x[4], 5);
      float y[6] = {1, 2, 3, 4, 5, 6};
      tables.rotate(*isa, 1, position, y);
      EXPECT_NEAR(y[1], 2 * c - 5 * s, 1e-5);
      EXPECT_NEAR(y[4], 2 * s + 5 * c, 1e-5);
      EXPECT_EQ(y[2], 3);
    }
}

TEST(CosSin, are_as_near_as_f64_allows) {
  testing::Random random(5);
  std::vector<double> angles = {0, 1e-300, 1e-9, 1, M_PI_4, M_PI_2, 3 * M_PI_4, M_PI, 1.5 * M_PI, 355, 4194303};
  for (int i = 0; i < 200000; ++i) angles.push_back(double(random.bits() % 4194304) * double(random.uniform(0, 1)));
  for (int i = 0; i < 200000; ++i) angles.push_back(i);
  for (double angle : angles) {
    const CosSin turn = cos_sin(angle);
    ASSERT_NEAR(turn.cos, std::cos(angle), 3e-16) << angle;
    ASSERT_NEAR(turn.sin, std::sin(angle), 3e-16) << angle;
  }
}

// A file may divide frequencies by as little as 1e-38.
TEST(CosSin, of_angles_out_of_all_proportion_are_cos_and_sin) {
  for (double angle : {kLargestAngle + 1, 1e8, 1e15, 1e20, 1e44, 1e300}) {
    const CosSin turn = cos_sin(angle);
    EXPECT_NEAR(turn.cos, std::cos(angle), 3e-16) << angle;
    EXPECT_NEAR(turn.sin, std::sin(angle), 3e-16) << angle;
  }
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
