// The gated delta rule on the software device against `reference`: every case of op_cases.h, in steps, chunks and
// again.
#include "op_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace honeycrisp::backend::metal::testing {
namespace {

using program::DeltaNet;

struct Recurrence : OpOfCase<DeltaNet> {
  using OpOfCase::OpOfCase;

  Buffers inputs(const std::vector<Row>& rows) const {
    std::vector<uint64_t> seeds;
    for (const Row& r : rows) seeds.push_back(r.position * 3 + r.sequence + 1);
    return random_rows(tiny.program, seeds);
  }
};

constexpr uint32_t kPositions = 21;

/// Two sequences in states 2 and 0, `chunk` rows of each at a time. Their outputs, sequence after sequence.
std::vector<float> outputs(const Recurrence& d, DeviceOps& device, uint32_t chunk, bool spoil_first = false) {
  SequencePages sequences[2];
  sequences[0].state = 2;
  sequences[1].state = 0;
  std::vector<float> all[2];
  for (uint32_t first = 0; first < kPositions; first += chunk) {
    const uint32_t n = std::min(chunk, kPositions - first);
    std::vector<Row> rows;
    for (uint32_t s = 0; s < 2; ++s)
      for (uint32_t i = 0; i < n; ++i) rows.push_back({0, first + i, s});
    Buffers b = d.inputs(rows);
    if (spoil_first)
      for (std::vector<float>& values : b) std::fill_n(values.begin(), values.size() / 2, NAN);
    const auto done = device.run(*d.op, {rows, sequences}, b);
    EXPECT_TRUE(done.has_value()) << done.error().message;
    const std::vector<float>& out = b[d.op->out.buffer];
    all[0].insert(all[0].end(), out.begin(), out.begin() + out.size() / 2);
    all[1].insert(all[1].end(), out.begin() + out.size() / 2, out.end());
  }
  all[0].insert(all[0].end(), all[1].begin(), all[1].end());
  return all[0];
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class MetalDeltaNet : public ::testing::TestWithParam<size_t> {
 protected:
  const Recurrence recurrence{*cases_of("delta_net")[GetParam()]};
};

TEST_P(MetalDeltaNet, near_the_reference_and_the_same_bits_in_any_grouping) {
  ASSERT_EQ(obstacle(recurrence.tiny.program, *recurrence.op), "");
  SequencePages sequences[2];
  sequences[0].state = 2;
  sequences[1].state = 0;
  std::vector<Row> rows;
  for (uint32_t s = 0; s < 2; ++s)
    for (uint32_t i = 0; i < kPositions; ++i) rows.push_back({0, i, s});
  Buffers want = recurrence.inputs(rows);
  ReferenceOps(recurrence.tiny.program, CacheType::kF32, 0, 3).run(*recurrence.op, {rows, sequences}, want);
  const std::vector<float>& expected = want[recurrence.op->out.buffer];

  DeviceOps device(recurrence.tiny.program, CacheType::kF32, {}, 0, 3, 0);
  const std::vector<float> whole = outputs(recurrence, device, kPositions);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    difference += std::pow(double(whole[i]) - double(expected[i]), 2);
    norm += std::pow(double(expected[i]), 2);
  }
  // sums of up to 128 terms in f32; what is left of an error decays from position to position
  EXPECT_LT(std::sqrt(difference / norm), 3e-6);
  // Position 0 begins anew, whatever the states hold.
  for (const uint32_t chunk : {kPositions, 1u, 2u, 5u})
    EXPECT_TRUE(same_bits(outputs(recurrence, device, chunk), whole)) << "chunks of " << chunk;

  const std::vector<float> beside = outputs(recurrence, device, 5, true);
  const size_t half = whole.size() / 2;
  EXPECT_TRUE(same_bits(std::span(beside).subspan(half), std::span(whole).subspan(half))) << "beside no numbers";
}

TEST_P(MetalDeltaNet, nothing_is_reported) {
  DeviceOps device(recurrence.tiny.program, CacheType::kF32, {.check = true, .seed = 9}, 0, 3, 0);
  outputs(recurrence, device, 9);
  outputs(recurrence, device, 1);
  EXPECT_EQ(device.reports(), "");
}

INSTANTIATE_TEST_SUITE_P(All, MetalDeltaNet, ::testing::Range(size_t{0}, cases_of("delta_net").size()),
                         [](const auto& p) { return cases_of("delta_net")[p.param]->name.substr(10); });

}  // namespace
}  // namespace honeycrisp::backend::metal::testing
