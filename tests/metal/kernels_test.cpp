// The test kernels on the fast and on the checking device: right results, and not one report.
#include "cases.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

namespace honeycrisp::backend::metal::soft::testing {
namespace {

std::shared_ptr<const Library> library(Device& device) {
  auto l = device.open_library("test_kernels");
  EXPECT_TRUE(l) << l.error().message;
  return l.value();
}

std::string text(const std::vector<Report>& reports) {
  std::string s;
  for (const Report& r : reports) s += to_string(r) + "\n";
  return s;
}

struct Mode {
  const char* name;
  DeviceOptions options;
};
const Mode kModes[] = {{"fast_one_thread", {.threads = 1}},
                       {"fast_four_threads", {.threads = 4}},
                       {"checked", {.check = true}},
                       {"checked_shuffled", {.check = true, .seed = 7}}};

class Kernels : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {};

TEST_P(Kernels, results_right_and_nothing_reported) {
  const Case& c = cases()[std::get<0>(GetParam())];
  const auto device = Device::create(kModes[std::get<1>(GetParam())].options).value();
  EXPECT_EQ(c.run(*device, library(*device)), "");
  EXPECT_EQ(text(device->reports()), "");
  EXPECT_EQ(device->faults_met(), 0u);
}
INSTANTIATE_TEST_SUITE_P(All, Kernels,
                         ::testing::Combine(::testing::Range<size_t>(0, cases().size()),
                                            ::testing::Range<size_t>(0, std::size(kModes))),
                         [](const auto& p) {
                           return std::string(cases()[std::get<0>(p.param)].name) + "_" +
                                  kModes[std::get<1>(p.param)].name;
                         });

/// Runs one dispatch of `kernel` with these buffers; the device is `checked` or not.
void run(Device& device, const char* kernel, const std::vector<std::shared_ptr<Buffer>>& buffers, Size grid,
         Size threads) {
  const auto pipeline = device.new_pipeline(library(device), kernel);
  ASSERT_TRUE(pipeline) << pipeline.error().message;
  const auto commands = device.new_command_buffer();
  const auto e = commands->new_encoder(DispatchType::kSerial);
  e->set_pipeline(*pipeline);
  for (uint32_t i = 0; i < buffers.size(); ++i) e->set_buffer(buffers[i], 0, i);
  e->dispatch_threads(grid, threads);
  e->end();
  commands->commit();
  commands->wait();
  ASSERT_TRUE(commands->result()) << commands->result().error().message;
}

class Language : public ::testing::TestWithParam<bool> {
 protected:
  std::shared_ptr<Device> device = Device::create({.check = GetParam()}).value();
  void TearDown() override { EXPECT_EQ(text(device->reports()), ""); }
};
INSTANTIATE_TEST_SUITE_P(All, Language, ::testing::Bool(), [](const auto& p) { return p.param ? "checked" : "fast"; });

TEST_P(Language, rules_and_functions_as_specified) {
  std::vector<unsigned char> packed(16);
  const float v[] = {1, 2, 3};
  std::memcpy(packed.data() + 4, v, 12);  // packed_float3 is aligned as a float
  const auto out = device->new_buffer(32 * 4).value();
  run(*device, "language", {buffer_of(*device, packed), out}, {32}, {32});
  const std::vector<float> want = {
      1 + 4 + 9 + 16, 4,    4,          2048, 1,  1, 127,  2, 321,   -1, 1,     2,         1,
      1.5f,           2.5f, 8 + 31 + 3, 5,    10, 2, 0xBC, 7, 1.25f, 3,  65504, 3 + 2 - 2, 3};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(static_cast<float*>(out->contents())[i], want[i]) << "case " << i;
}

TEST_P(Language, simd_functions_of_all_lanes) {
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) x[size_t(i)] = float((i * 7) % 32) - 10;  // small integers: sums are exact
  const auto out = device->new_buffer(16 * 32 * 4).value();
  run(*device, "simd_functions", {buffer_of(*device, x), out}, {32}, {32});
  const float all = std::accumulate(x.begin(), x.end(), 0.0f);
  float before = 0;
  for (uint32_t lane = 0; lane < 32; before += x[lane++]) {
    const float want[16] = {all,
                            21,
                            -10,
                            x[0] * x[1] * x[2],
                            before + x[lane],
                            before,
                            x[31 - lane],
                            x[lane ^ 5],
                            x[lane < 3 ? lane : lane - 3],
                            x[lane > 28 ? lane : lane + 3],
                            x[7],
                            x[0],
                            3,
                            float(0x0202),
                            96,
                            0 + 31 + 0};
    for (uint32_t row = 0; row < 16; ++row)
      EXPECT_EQ(static_cast<float*>(out->contents())[row * 32 + lane], want[row]) << "row " << row << ", lane " << lane;
  }
}

TEST_P(Language, lanes_that_ended_take_no_part) {
  const auto out = device->new_buffer(20 * 4).value();
  run(*device, "early_end", {buffer_of(*device, std::vector<float>(32, 1.0f)), out}, {32}, {32});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(static_cast<float*>(out->contents())[i], 20);
}

TEST_P(Language, positions_in_three_dimensions_with_smaller_threadgroups_at_the_edge) {
  const Size grid{7, 5, 2}, threads{4, 2, 1};
  const auto out = device->new_buffer(70 * 4).value();
  run(*device, "positions", {out}, grid, threads);
  for (uint32_t z = 0; z < 2; ++z)
    for (uint32_t y = 0; y < 5; ++y)
      for (uint32_t x = 0; x < 7; ++x) {
        const uint32_t size_x = x / 4 == 1 ? 3 : 4, size_y = y / 2 == 2 ? 1 : 2;
        EXPECT_EQ(static_cast<uint32_t*>(out->contents())[(z * 5 + y) * 7 + x],
                  x % 4 + 10 * (y % 2) + 1000 * (x / 4) + 10000 * (y / 2) + 100000 * size_x + 1000000 * size_y);
      }
}

}  // namespace
}  // namespace honeycrisp::backend::metal::soft::testing
