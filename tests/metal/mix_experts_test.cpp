// Mixtures of experts on the software device against `reference`: every case of op_cases.h, in both roles, alone and
// together.
#include "op_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>

namespace honeycrisp::backend::metal::testing {
namespace {

using program::MixExperts;

struct Mixture : OpOfCase<MixExperts> {
  using OpOfCase::OpOfCase;

  Buffers inputs(uint32_t first_row, uint32_t n) const {
    std::vector<uint64_t> seeds(n);
    std::iota(seeds.begin(), seeds.end(), first_row);
    return random_rows(tiny.program, seeds);
  }
};

constexpr SequencePages kNoSequence[1] = {};
std::vector<Row> rows_of(uint32_t n, Role role) {
  std::vector<Row> rows(n);
  for (uint32_t i = 0; i < n; ++i) rows[i] = {.position = i, .role = role};
  return rows;
}

/// The residual stream after the op, for rows first_row, first_row + 1, ...; with `spoiled` one of them is no number.
std::vector<float> result(const Mixture& m, DeviceOps& device, uint32_t first_row, uint32_t n, Role role,
                          uint32_t spoiled = UINT32_MAX) {
  Buffers b = m.inputs(first_row, n);
  if (spoiled < n) {
    const uint32_t width = m.tiny.program.buffers[m.op->in.buffer].width;
    std::fill_n(b[m.op->in.buffer].begin() + spoiled * width, width, NAN);
  }
  const auto rows = rows_of(n, role);
  const auto done = device.run(*m.op, {rows, kNoSequence}, b);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  return b[m.op->ending.x.buffer];
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

constexpr uint32_t kRows = 19;  // more than a tile of pairs of one expert

class MetalMixExperts : public ::testing::TestWithParam<size_t> {
 protected:
  const Mixture mixture{*cases_of("mix_experts")[GetParam()]};
  void SetUp() override { ASSERT_EQ(obstacle(mixture.tiny.program, *mixture.op), ""); }
};

TEST_P(MetalMixExperts, near_the_reference_and_the_same_bits_in_any_grouping) {
  Buffers want = mixture.inputs(0, kRows);
  const auto rows = rows_of(kRows, Role::kPrompt);
  ReferenceOps(mixture.tiny.program, CacheType::kF32, 0, 0).run(*mixture.op, {rows, kNoSequence}, want);
  const std::vector<float>& expected = want[mixture.op->ending.x.buffer];
  DeviceOps device(mixture.tiny.program, CacheType::kF32, {}, 0, 0, 0);
  for (const Role role : {Role::kGenerated, Role::kPrompt}) {
    const std::vector<float> whole = result(mixture, device, 0, kRows, role);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      difference += std::pow(double(whole[i]) - double(expected[i]), 2);
      norm += std::pow(double(expected[i]), 2);
    }
    // two products of up to 256 terms, each term rounded to 2^-24 in chains that err by some 2^-22
    EXPECT_LT(std::sqrt(difference / norm), 3e-6);

    const size_t width = whole.size() / kRows;
    for (const uint32_t n : {1u, 5u})
      for (uint32_t first = 0; first + n <= kRows; first += n)
        ASSERT_TRUE(
            same_bits(result(mixture, device, first, n, role), std::span(whole).subspan(first * width, n * width)))
            << n << " rows from " << first;

    const std::vector<float> spoiled = result(mixture, device, 0, kRows, role, 7);
    for (uint32_t r = 0; r < kRows; ++r) {
      if (r == 7) continue;
      EXPECT_TRUE(same_bits(std::span(spoiled).subspan(r * width, width), std::span(whole).subspan(r * width, width)))
          << "row " << r << " beside one that is no number";
    }
  }
}

TEST_P(MetalMixExperts, nothing_is_reported) {
  DeviceOps device(mixture.tiny.program, CacheType::kF32, {.check = true, .seed = 5}, 0, 0, 0);
  result(mixture, device, 0, 1, Role::kGenerated);
  result(mixture, device, 0, kRows, Role::kPrompt);
  EXPECT_EQ(device.reports(), "");
}

INSTANTIATE_TEST_SUITE_P(All, MetalMixExperts, ::testing::Range(size_t{0}, cases_of("mix_experts").size()),
                         [](const auto& p) { return cases_of("mix_experts")[p.param]->name.substr(12); });

TEST(MetalMixExpertsChoice, ties_go_to_the_lowest_index) {
  Mixture m(*cases_of("mix_experts")[2]);  // of five experts
  MixExperts op = *m.op;
  op.router.top_k = 3;
  auto& router = m.tiny.program.weights[op.router.matrix.weight];
  const std::vector<float> zeros(router.bytes / sizeof(float));
  router.data = reinterpret_cast<const std::byte*>(zeros.data());
  Buffers got = m.inputs(0, 2), want = got;
  const auto rows = rows_of(2, Role::kGenerated);
  ReferenceOps(m.tiny.program, CacheType::kF32, 0, 0).run(op, {rows, kNoSequence}, want);
  DeviceOps device(m.tiny.program, CacheType::kF32, {}, 0, 0, 0);
  ASSERT_TRUE(device.run(op, {rows, kNoSequence}, got).has_value());
  for (size_t i = 0; i < got[0].size(); ++i) ASSERT_NEAR(got[0][i], want[0][i], 1e-5) << "element " << i;
}

}  // namespace
}  // namespace honeycrisp::backend::metal::testing
