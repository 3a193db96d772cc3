// Every format × shape × instruction set: near the exact product, and the same bits everywhere.
#include "backend/cpu/matrix.h"

#include "backend/cpu/testing.h"
#include "backend/cpu/thread_pool.h"
#include "base/checked.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace honeycrisp::backend::cpu {
namespace {

using namespace testing;

constexpr uint32_t kRows[] = {1, 19, 51};         // of one, two and four panels
constexpr uint32_t kBlocks[] = {1, 2, 3, 5, 37};  // the last for blocks of 32; many groups of inputs
constexpr uint32_t kSuperBlocks[] = {1, 2, 3, 4, 5};
constexpr uint32_t kFloatColumns[] = {1, 3, 32, 100, 547};
constexpr uint32_t kBatches[] = {1, 2, 3, 7, 8, 9, 17, 23};
constexpr uint32_t kLargestBatch = 23;

struct Problem {
  Problem(quant::Format format, uint32_t rows, uint32_t cols, uint64_t seed, uint32_t slices = 1,
          Activations with = Activations::k14Bit)
      : random(seed), activations(with) {
    bytes = random_weights(random, format, uint64_t{slices} * rows * cols);
    program.weights.push_back({.name = "w",
                               .format = format,
                               .cols = cols,
                               .rows = rows,
                               .slices = slices,
                               .data = bytes.data(),
                               .bytes = bytes.size()});
    program.steps.push_back({program::Logits{.table = {0, 0, rows}}, "logits", {}});  // so that it is packed
    pack();
    x = random.floats(size_t{kLargestBatch} * cols, -3, 3);
  }

  void pack() {
    ThreadPool pool(1);
    packed = PackedWeights::make(program, {}, pool).value();
  }

  /// [n_rows][rows] of the batch rows [first, first + n_rows).
  std::vector<float> multiply(const Isa& isa, uint32_t first, uint32_t n_rows, uint32_t together = 1) const {
    return multiply(isa, first, n_rows, {n_rows}, 0, together);
  }
  /// [choice.count][rows] of a slice, for some of the rows [first, first + n_rows); `together`: panels of a call.
  std::vector<float> multiply(const Isa& isa, uint32_t first, uint32_t n_rows, const RowChoice& choice, uint32_t slice,
                              uint32_t together = 1) const {
    const FlushSubnormals flush;
    const program::Weight& w = program.weights[0];
    const auto matrix = MatrixKernel::create(program, {0, 0, w.rows}, {isa, &packed, activations});
    EXPECT_TRUE(matrix.has_value());
    const InputKernel input(program, std::nullopt, w.cols, {&*matrix, 1});
    std::vector<std::byte> groups(round_up<size_t>(n_rows, kTileRows) * ceil_div(w.cols, kGroup) *
                                  group_bytes(activations));
    const size_t padded = round_up(w.cols, kLanes);
    std::vector<float> plain(n_rows * padded), floats(matrix->scratch_floats()), y(n_rows * kMostPanels * kLanes);
    StepState s{
        .isa = &isa,
        .integers = &integers_of(isa, activations),
        .group_bytes = group_bytes(activations),
        .n_rows = n_rows,
    };
    const PreparedInput prepared{groups.data(), plain.data(), std::min(n_rows, kTileRows)};
    ThreadScratch t{.floats = floats.data()};
    for (uint32_t row = 0; row < n_rows; ++row)
      input.prepare(x.data() + size_t{first + row} * w.cols, row, prepared, s, t);
    std::vector<float> out(size_t{choice.count} * w.rows);
    for (uint32_t panel = 0; panel < matrix->n_panels(); panel += together) {
      const PanelChoice panels{panel, std::min(together, matrix->n_panels() - panel)};
      matrix->multiply(panels, prepared, choice, s, t, y.data(), slice);
      for (uint32_t row = 0; row < choice.count; ++row)
        std::copy_n(&y[row * panels.count * kLanes], matrix->outputs_of(panels), &out[row * w.rows + panel * kLanes]);
    }
    return out;
  }

  Random random;
  Activations activations;
  std::vector<std::byte> bytes;
  program::Program program;
  PackedWeights packed;
  std::vector<float> x;  // [kLargestBatch][cols]
};

bool takes_integers(quant::Format format) {
  return multiply_panels_for(integers_of(*available_isas()[0], Activations::k14Bit), format) != nullptr;
}

// As integers an activation is off by at most half a step of its group, uniformly: a variance of step² / 12 each, times
// w². Six standard deviations, and the f32 roundings of at most four operations per group of 32. As f32 a product takes
// part in at most as many roundings as its group has inputs, and in one per group.
double tolerance(const std::vector<float>& w, const float* x, bool integers, Activations activations) {
  const double steps = activations == Activations::k8Bit ? 127 : 8127;
  double variance = 0, magnitude = 0;
  for (size_t k = 0; k < w.size(); k += kGroup) {
    const size_t end = std::min(w.size(), k + kGroup);
    double largest = 0;
    for (size_t i = k; i < end; ++i) largest = std::max(largest, std::fabs(double(x[i])));
    for (size_t i = k; i < end; ++i) {
      variance += double(w[i]) * w[i] * (largest / steps) * (largest / steps) / 12;
      magnitude += std::fabs(double(w[i]) * x[i]) + (integers ? std::fabs(double(w[i])) * largest : 0);
    }
  }
  const double groups = double(ceil_div<size_t>(w.size(), kGroup));
  return integers ? 6 * std::sqrt(variance) + magnitude * 0x1p-24 * (8 + 8 * groups)
                  : magnitude * 0x1p-24 * (kGroup + groups);
}

TEST(PackedWeights, more_than_the_memory_is_refused_before_anything_is_packed) {
  Problem p(quant::Format::kQ8_0, 48, 64, 1);  // 3 panels of 16 rows of two blocks of 34 bytes
  constexpr uint64_t kBytes = 48 * 2 * 34;
  ThreadPool pool(1);
  uint64_t told = 0;
  const auto make = [&](uint64_t limit) {
    return PackedWeights::make(
        p.program, {.memory_limit = limit, .progress = [&](uint64_t done, uint64_t) { told = done; }}, pool);
  };
  const auto refused = make(kBytes - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(refused.error().message,
            "the cpu backend keeps 3.2 KiB of weights in memory, and 3.2 KiB may be used here (a smaller model or a "
            "stronger quantization takes less)");
  EXPECT_EQ(told, 0u);
  EXPECT_FALSE(PackedWeights::check_memory(p.program, kBytes - 1));
  EXPECT_TRUE(PackedWeights::check_memory(p.program, kBytes));
  // The same matrix twice is packed once.
  p.program.steps.push_back(p.program.steps[0]);
  const auto packed = make(kBytes);
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(packed->memory_bytes(), kBytes);
  EXPECT_EQ(told, kBytes);
}

constexpr Activations kActivations[] = {Activations::k14Bit, Activations::k8Bit};
const char* name_of(Activations a) { return a == Activations::k8Bit ? "8 bits" : "14 bits"; }

class Matrix : public ::testing::TestWithParam<quant::Format> {};

TEST_P(Matrix, product_is_near_the_exact_one) {
  const quant::Format format = GetParam();
  const uint32_t block = quant::info(format).block_elements;
  for (uint32_t rows : kRows)
    for (uint32_t i = 0; i < 10; ++i) {
      const uint32_t cols = block == 1 ? kFloatColumns[i % 5] : (block > 32 ? kSuperBlocks : kBlocks)[i % 5] * block;
      const Problem p(format, rows, cols, rows * 100 + i, 1, kActivations[i / 5]);
      const std::vector<float> y = p.multiply(*available_isas()[0], 0, kLargestBatch);
      std::vector<float> w(cols);
      for (uint32_t r = 0; r < rows; ++r) {
        quant::dequantize_row(format, p.bytes.data() + r * quant::row_bytes(format, cols), w.data(), cols);
        for (uint32_t b = 0; b < kLargestBatch; ++b) {
          const float* x = p.x.data() + size_t{b} * cols;
          double exact = 0;
          for (uint32_t k = 0; k < cols; ++k) exact += double(w[k]) * double(x[k]);
          ASSERT_NEAR(y[size_t{b} * rows + r], exact, tolerance(w, x, takes_integers(format), p.activations))
              << name_of(p.activations) << ", " << rows << " x " << cols << ", output " << r << ", row " << b;
        }
      }
    }
}

TEST_P(Matrix, bits_are_the_same_on_every_instruction_set_in_every_batch_and_with_any_panels_together) {
  const quant::Format format = GetParam();
  const uint32_t block = quant::info(format).block_elements;
  for (uint32_t rows : kRows)
    for (uint32_t i = 0; i < 10; ++i) {
      const uint32_t cols = block == 1 ? kFloatColumns[i % 5] : (block > 32 ? kSuperBlocks : kBlocks)[i % 5] * block;
      const Problem p(format, rows, cols, rows * 1000 + i, 1, kActivations[i / 5]);
      const std::vector<float> expected = p.multiply(*find_isa("scalar").value(), 0, kLargestBatch);
      for (const Isa* isa : tested_isas())
        for (uint32_t batch : kBatches) {
          const uint32_t first = kLargestBatch - batch;
          const std::vector<float> part(expected.begin() + size_t{first} * rows, expected.end());
          const uint32_t together = 1 + (batch + i) % kMostPanels;
          ASSERT_TRUE(same_bits(p.multiply(*isa, first, batch, together), part))
              << isa->name << ", " << name_of(p.activations) << ", " << rows << " x " << cols << ", batch of " << batch
              << ", " << together << " panels together";
        }
    }
}

TEST_P(Matrix, a_slice_times_some_of_the_rows_has_the_bits_of_it_alone) {
  const quant::Format format = GetParam();
  const uint32_t block = quant::info(format).block_elements, cols = block == 1 ? 37 : 3 * block;
  constexpr uint32_t kOutputs = 19, kChosen[] = {5, 0, 12, 1};
  for (Activations activations : kActivations) {
    const Problem p(format, kOutputs, cols, 11, 3, activations);
    Problem alone(format, kOutputs, cols, 11, 3, activations);  // of which only the last slice is kept
    alone.program.weights[0].slices = 1;
    alone.program.weights[0].data += 2 * p.bytes.size() / 3;
    alone.pack();
    for (const Isa* isa : tested_isas()) {
      const std::vector<float> all = alone.multiply(*isa, 0, kLargestBatch);
      const std::vector<float> listed = p.multiply(*isa, 0, kLargestBatch, {.count = 4, .indices = kChosen}, 2);
      const std::vector<float> middle = p.multiply(*isa, 0, kLargestBatch, {.count = 3, .first = 6}, 2);
      for (size_t i = 0; i < 4; ++i)
        EXPECT_EQ(0, std::memcmp(&listed[i * kOutputs], &all[kChosen[i] * kOutputs], kOutputs * sizeof(float)));
      EXPECT_EQ(0, std::memcmp(middle.data(), &all[6 * kOutputs], middle.size() * sizeof(float)));
    }
  }
}

TEST_P(Matrix, infinity_and_nan_reach_every_output_of_their_row_and_no_other) {
  const quant::Format format = GetParam();
  const uint32_t block = quant::info(format).block_elements, cols = block == 1 ? 40 : 2 * std::max(block, 32u);
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                    std::numeric_limits<float>::quiet_NaN()})
    for (const Isa* isa : tested_isas()) {
      Problem p(format, 5, cols, 7, 1, std::isnan(bad) ? Activations::k8Bit : Activations::k14Bit);
      p.x[cols + 33] = bad;  // second row
      const std::vector<float> y = p.multiply(*isa, 0, 3);
      for (uint32_t r = 0; r < 5; ++r) {
        EXPECT_TRUE(std::isfinite(y[r]) && std::isfinite(y[10 + r])) << isa->name;
        EXPECT_FALSE(std::isfinite(y[5 + r])) << isa->name << " gives " << y[5 + r] << " for " << bad;
      }
    }
}

class Panel : public ::testing::TestWithParam<quant::Format> {};

TEST_P(Panel, gives_back_the_outputs_of_the_file) {
  const quant::Format format = GetParam();
  const uint32_t cols = 3 * std::max(quant::info(format).block_elements, 32u), rows = 21;
  const Problem p(format, rows, cols, 3);
  const PackedMatrix* matrix = p.packed.find({0, 0, rows});
  ASSERT_NE(matrix, nullptr);
  std::vector<float> expected(cols), ours(cols);
  for (const Isa* isa : tested_isas())
    for (uint32_t r = 0; r < rows; ++r) {
      quant::dequantize_row(format, p.bytes.data() + r * quant::row_bytes(format, cols), expected.data(), cols);
      unpack_for(*isa, format)(matrix->data + r / kLanes * matrix->panel_bytes, cols, r % kLanes, ours.data());
      ASSERT_TRUE(same_bits(ours, expected)) << isa->name << ", output " << r;
    }
}

std::vector<quant::Format> weight_formats() {
  std::vector<quant::Format> formats;
  for (const quant::FormatInfo& f : quant::kFormats)
    if (!is_integer_type(f.format)) formats.push_back(f.format);
  return formats;
}
std::vector<quant::Format> packed_formats() {
  std::vector<quant::Format> formats = weight_formats();
  std::erase_if(formats, [](quant::Format f) { return !is_packed(f); });
  return formats;
}
INSTANTIATE_TEST_SUITE_P(All, Panel, ::testing::ValuesIn(packed_formats()),
                         [](const auto& param_info) { return std::string(quant::to_string(param_info.param)); });
INSTANTIATE_TEST_SUITE_P(All, Matrix, ::testing::ValuesIn(weight_formats()),
                         [](const auto& param_info) { return std::string(quant::to_string(param_info.param)); });

// Rows 16 to 35 of each of three slices: what lies between them belongs to others.
TEST(PackedWeights, only_the_rows_that_were_packed_are_given_back) {
  constexpr uint32_t kSlices = 3, kOfSlice = 40, kFirst = 16, kPacked = 20;
  Problem p(quant::Format::kQ4_0, kOfSlice, 64, 5, kSlices);
  p.program.steps[0].op = program::Logits{.table = {0, kFirst, kPacked}};
  const uint64_t row_bytes = p.program.weights[0].row_bytes();
  std::vector<int> given(p.bytes.size());
  uint64_t last_done = 0, last_total = 0;
  const CompileOptions options{.progress =
                                   [&](uint64_t done, uint64_t total) {
                                     EXPECT_GE(done, last_done);
                                     last_done = done;
                                     last_total = total;
                                   },
                               .release_source =
                                   [&](const std::byte* data, uint64_t bytes) {
                                     for (uint64_t i = 0; i < bytes; ++i) ++given.at(size_t(data - p.bytes.data()) + i);
                                   }};
  ThreadPool pool(2);
  ASSERT_TRUE(PackedWeights::make(p.program, options, pool));
  for (size_t i = 0; i < given.size(); ++i) {
    const uint64_t row = i / row_bytes % kOfSlice;
    ASSERT_EQ(given[i], row >= kFirst && row < kFirst + kPacked ? 1 : 0) << "byte " << i;
  }
  EXPECT_EQ(last_done, last_total);
  EXPECT_EQ(last_total, kSlices * kPacked * row_bytes);
}

TEST(MatrixInput, huge_and_tiny_activations_stay_exact_in_proportion) {
  for (float factor : {1e-25f, 1e-10f, 1e10f, 1e30f})
    for (const Isa* isa : tested_isas()) {
      Problem p(quant::Format::kQ8_0, 3, 64, 11);
      const std::vector<float> y = p.multiply(*isa, 0, 1);
      for (float& x : p.x) x *= factor;
      const std::vector<float> scaled = p.multiply(*isa, 0, 1);
      for (size_t i = 0; i < y.size(); ++i)
        EXPECT_NEAR(scaled[i] / factor, y[i], 2e-4 * 64) << isa->name << " × " << factor;
    }
}

TEST(MatrixInput, groups_of_zeros_and_of_vanishing_values_are_zero) {
  for (const Isa* isa : tested_isas()) {
    Problem p(quant::Format::kQ4_1, 3, 64, 13);
    for (float value : {0.0f, 1e-31f, 1e-40f, -0.0f}) {
      std::fill(p.x.begin(), p.x.end(), value);
      for (float y : p.multiply(*isa, 0, 1)) EXPECT_EQ(y, 0.0f) << isa->name << " of " << value;
    }
  }
}

template <int kPlanes>
void expect_nearest(const Isa& isa, Activations activations, float largest_q) {
  Random random(5);
  std::vector<float> x = random.floats(32, -2, 2);
  x[7] = 2;
  ActivationGroup<kPlanes> g;
  ASSERT_EQ(sizeof g, group_bytes(activations));
  integers_of(isa, activations).quantize(x.data(), 32, 1, &g);
  EXPECT_EQ(g.d, 2.0f / largest_q);
  int32_t total = 0, sums[kPlanes][2] = {};
  for (int i = 0; i < 32; ++i) {
    int q = 0;
    for (const auto& plane : g.planes) q = 128 * q + plane[i];
    EXPECT_EQ(q, int(std::nearbyint(x[i] * (largest_q / 2.0f)))) << isa.name;
    if (kPlanes == 2) {
      for (const auto& plane : g.planes) EXPECT_TRUE(plane[i] >= -64 && plane[i] <= 63) << isa.name;
    }
    total += q;
    for (int p = 0; p < kPlanes; ++p) sums[p][i / 16] += g.planes[p][i];
  }
  for (int p = 0; p < kPlanes; ++p) {
    EXPECT_EQ(g.raised[p][0], -128 * (sums[p][0] + sums[p][1]));
    EXPECT_EQ(g.raised[p][1], -128 * sums[p][0]);
    EXPECT_EQ(g.raised[p][2], -128 * sums[p][1]);
  }
  EXPECT_EQ(g.d_sum, g.d * float(total));
}

TEST(MatrixInput, integers_are_the_nearest_of_their_bits) {
  for (const Isa* isa : tested_isas()) {
    expect_nearest<1>(*isa, Activations::k8Bit, 127);
    expect_nearest<2>(*isa, Activations::k14Bit, 8127);
  }
}

// Codes and activations at their largest: what 16-bit sums of byte products must hold.
TEST_P(Panel, the_largest_products_do_not_overflow) {
  const quant::Format format = GetParam();
  const uint32_t cols = 2 * std::max(quant::info(format).block_elements, 32u);
  for (Activations activations : kActivations)
    for (uint8_t fill : {0x00, 0x7f, 0x80, 0xff}) {
      Problem p(format, 17, cols, 3, 1, activations);
      const std::vector<std::byte> extreme = random_weights(p.random, format, uint64_t{17} * cols, fill);
      std::copy(extreme.begin(), extreme.end(), p.bytes.begin());
      p.pack();
      for (float sign : {1.0f, -1.0f}) {
        std::fill(p.x.begin(), p.x.end(), 3 * sign);
        const std::vector<float> expected = p.multiply(*find_isa("scalar").value(), 0, 9);
        for (const Isa* isa : tested_isas())
          EXPECT_TRUE(same_bits(p.multiply(*isa, 0, 9), expected)) << isa->name << ", " << name_of(activations);
      }
    }
}

TEST(MatrixKernel, integer_tensors_are_refused_by_name) {
  program::Program program;
  program.weights.push_back({.name = "blk.0.ids", .format = quant::Format::kI32, .cols = 4, .rows = 1});
  const auto matrix = MatrixKernel::create(program, {0, 0, 1}, {*available_isas()[0]});
  ASSERT_FALSE(matrix.has_value());
  EXPECT_NE(matrix.error().message.find("blk.0.ids"), std::string::npos);
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
