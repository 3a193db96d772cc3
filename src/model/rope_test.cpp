// Rotations of every kind against numbers of the `transformers` library (5.24, in f64) for heads of 16, and what a file
// may not say about them.
#include "model/rope.h"

#include "support/golden_families.h"
#include "support/read_raw.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace honeycrisp::model {
namespace {

using namespace test_support;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kPairs = 8;
using Frequencies = std::array<double, kPairs>;

RawTensor factors(const char* name, const std::vector<float>& values) {
  std::string data;
  for (const float v : values) data += packed(v);
  return {name, 0, {values.size()}, data, {}, {}};
}

/// The file as written, with what keeps its bytes alive.
struct Loaded {
  explicit Loaded(const RawGguf& raw, const LoadOptions& options = {}) {
    auto opened = gguf::File::open(folder.write("model.gguf", raw.bytes()));
    EXPECT_TRUE(opened) << opened.error().message;
    file.emplace(std::move(*opened));
    auto loaded = load(*file, options);
    if (loaded)
      model = std::move(*loaded);
    else
      error = loaded.error().message;
  }
  const program::Rope& rope(size_t i = 0) const { return model.program.ropes.at(i); }

  TemporaryFolder folder;
  std::optional<gguf::File> file;
  Model model;
  std::string error;
};

RawGguf tiny() {
  RawGguf file = tiny_llama({.context = 512});
  file.set("llama.rope.freq_base", value(10000.0f));
  return file;
}

const std::vector<float> kShort = {1.0f, 1.0f, 1.05f, 1.1f, 1.2f, 1.3f, 1.5f, 2.0f};
const std::vector<float> kLong = {1.0f, 1.5f, 2.0f, 4.0f, 8.0f, 16.0f, 24.0f, 32.0f};

void make_longrope(RawGguf& f) {
  f.tensors.push_back(factors("rope_factors_short.weight", kShort));
  f.tensors.push_back(factors("rope_factors_long.weight", kLong));
  f.set("llama.rope.scaling.original_context_length", value(uint32_t{64}));
}
void make_yarn(RawGguf& f, float base, float factor, uint32_t original) {
  f.set("llama.rope.freq_base", value(base));
  f.set("llama.rope.scaling.type", value("yarn"));
  f.set("llama.rope.scaling.factor", value(factor));
  f.set("llama.rope.scaling.original_context_length", value(original));
}

constexpr Frequencies kUnscaled = {1.0,  0.31622776601683794,   0.1,   0.03162277660168379,
                                   0.01, 0.0031622776601683795, 0.001, 0.00031622776601683794};
constexpr Frequencies kYarn = {1.0,    0.23717082451262847,   0.05,    0.007905694150420948,
                               0.0025, 0.0007905694150420947, 0.00025, 7.905694150420948e-05};

struct Case {
  const char* name;
  void (*change)(RawGguf&);
  uint32_t context;
  Frequencies frequencies;
  double magnitude;
  const char* kind;
};
const Case kCases[] = {
    {"none", [](RawGguf&) {}, 0, kUnscaled, 1, "base 10000"},
    {"type_none_with_a_factor",
     [](RawGguf& f) {
       f.set("llama.rope.scaling.type", value("none"));
       f.set("llama.rope.scaling.factor", value(4.0f));
     },
     0, kUnscaled, 1, "base 10000"},
    {"linear",
     [](RawGguf& f) {
       f.set("llama.rope.scaling.type", value("linear"));
       f.set("llama.rope.scaling.factor", value(8.0f));
     },
     0,
     {0.125, 0.03952847075210474, 0.0125, 0.003952847075210474, 0.00125, 0.00039528470752104737, 0.000125,
      3.952847075210474e-05},
     1,
     "base 10000, linear ×8"},
    {"linear_of_old_files",
     [](RawGguf& f) { f.set("llama.rope.scale_linear", value(8.0f)); },
     0,
     {0.125, 0.03952847075210474, 0.0125, 0.003952847075210474, 0.00125, 0.00039528470752104737, 0.000125,
      3.952847075210474e-05},
     1,
     "base 10000, linear ×8"},
    {"yarn", [](RawGguf& f) { make_yarn(f, 1e4f, 4, 128); }, 0, kYarn, 1.138629436111989,
     "base 10000, YaRN ×4 of 128 positions, magnitude 1.139"},
    {"yarn_with_betas",
     [](RawGguf& f) {
       make_yarn(f, 1e6f, 40, 4096);
       f.set("llama.rope.scaling.yarn_beta_fast", value(16.0f));
       f.set("llama.rope.scaling.yarn_beta_slow", value(2.0f));
     },
     0,
     {1.0, 0.17782794100389226, 0.03162277660168379, 0.002881999291600539, 2.5e-05, 4.445698525097307e-06,
      7.905694150420949e-07, 1.4058533129758726e-07},
     1.3688879454113936,
     "base 1e+06, YaRN ×40 of 4096 positions, magnitude 1.369"},
    {"yarn_with_its_attention_factor",
     [](RawGguf& f) {
       make_yarn(f, 1e4f, 4, 128);
       f.set("llama.rope.scaling.yarn_attn_factor", value(0.75f));
     },
     0, kYarn, 0.75, "base 10000, YaRN ×4 of 128 positions, magnitude 0.75"},
    {"yarn_with_the_factor_that_overrides",
     [](RawGguf& f) {
       make_yarn(f, 1e4f, 4, 128);
       f.set("llama.rope.scaling.yarn_attn_factor", value(0.75f));
       f.set("llama.rope.scaling.attn_factor", value(1.25f));
     },
     0, kYarn, 1.25, "base 10000, YaRN ×4 of 128 positions, magnitude 1.25"},
    {"yarn_with_a_log_multiplier",
     [](RawGguf& f) {
       make_yarn(f, 1e4f, 4, 128);
       f.set("llama.rope.scaling.yarn_log_multiplier", value(0.7));
     },
     0, kYarn, 1.0379100195867799, "base 10000, YaRN ×4 of 128 positions, magnitude 1.038"},
    {"yarn_without_extrapolation",
     [](RawGguf& f) {
       make_yarn(f, 1e4f, 8, 128);
       f.set("llama.rope.scaling.yarn_ext_factor", value(0.0f));
       f.set("llama.rope.scaling.yarn_attn_factor", value(1.0f));
     },
     0,
     {0.125, 0.03952847075210474, 0.0125, 0.003952847075210474, 0.00125, 0.00039528470752104737, 0.000125,
      3.952847075210474e-05},
     1,
     "base 10000, YaRN ×8 of 128 positions, magnitude 1"},
    {"longrope_within_the_original_context",
     make_longrope,
     64,
     {1.0, 0.31622776601683794, 0.09523809523809523, 0.02874797872880345, 0.008333333333333333, 0.002432521277052599,
      0.0006666666666666666, 0.00015811388300841897},
     1.224744871391589,
     "base 10000, long rope, short factors for a context of 64 (originally 64), magnitude 1.225"},
    {"longrope_beyond_the_original_context",
     make_longrope,
     65,
     {1.0, 0.21081851067789195, 0.05, 0.007905694150420948, 0.00125, 0.00019764235376052369, 4.1666666666666665e-05,
      9.882117688026186e-06},
     1.224744871391589,
     "base 10000, long rope, long factors for a context of 65 (originally 64), magnitude 1.225"},
    {"longrope_of_the_trained_context_with_a_given_magnitude",
     [](RawGguf& f) {
       make_longrope(f);
       f.set("llama.rope.scaling.type", value("longrope"));
       f.set("llama.rope.scaling.attn_factor", value(1.5f));
     },
     0,
     {1.0, 0.21081851067789195, 0.05, 0.007905694150420948, 0.00125, 0.00019764235376052369, 4.1666666666666665e-05,
      9.882117688026186e-06},
     1.5,
     "base 10000, long rope, long factors for a context of 512 (originally 64), magnitude 1.5"},
    {"frequency_factors",
     [](RawGguf& f) { f.tensors.push_back(factors("rope_freqs.weight", {1, 1, 2, 4, 8, 8, 8, 1e30f})); },
     0,
     {1.0, 0.31622776601683794, 0.05, 0.007905694150420948, 0.00125, 0.00039528470752104737, 0.000125, 3.1622776e-34},
     1,
     "base 10000, frequency factors"},
};

class Ropes : public testing::TestWithParam<Case> {};

TEST_P(Ropes, agree_with_transformers) {
  RawGguf raw = tiny();
  GetParam().change(raw);
  const Loaded loaded(raw, {.context = GetParam().context});
  ASSERT_EQ(loaded.error, "");
  const program::Rope& rope = loaded.rope();
  ASSERT_EQ(rope.inverse_frequency.size(), kPairs);
  // Factors in files are f32.
  for (uint32_t i = 0; i < kPairs; ++i)
    EXPECT_NEAR(rope.inverse_frequency[i] / GetParam().frequencies[i], 1, 1e-7) << "pair " << i;
  EXPECT_NEAR(rope.magnitude, GetParam().magnitude, 1e-7);
  EXPECT_EQ(rope.kind, GetParam().kind);
  // Every scaling but the plain tensor of factors is told.
  const bool scaled = std::ranges::any_of(std::array{"linear", "YaRN", "long rope"},
                                          [&](const char* word) { return rope.kind.find(word) != std::string::npos; });
  EXPECT_THAT(loaded.model.summary.notes, testing::SizeIs(scaled ? 1 : 0));
}

INSTANTIATE_TEST_SUITE_P(Table, Ropes, testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Rope, yarn_of_a_range_that_is_not_rounded) {
  const RopeTable table{
      .rotated = 16, .base = 150000, .factor = 32, .yarn = RopeTable::Yarn{.original_context = 4096, .rounded = false}};
  constexpr Frequencies kExpected = {1.0,
                                     0.2254180002028708,
                                     0.050813274815461475,
                                     0.006794959489732219,
                                     0.00045648391922324086,
                                     1.818833668168956e-05,
                                     4.0999784818029795e-06,
                                     9.242089502428301e-07};
  const program::Rope rope = make_rope(table);
  for (uint32_t i = 0; i < kPairs; ++i) EXPECT_NEAR(rope.inverse_frequency[i] / kExpected[i], 1, 1e-12) << i;
}

TEST(Rope, factors_of_one_change_no_bit_and_factors_of_eight_equal_linear_eight) {
  RawGguf ones = tiny(), eights = tiny(), linear = tiny();
  ones.tensors.push_back(factors("rope_freqs.weight", std::vector<float>(kPairs, 1)));
  eights.tensors.push_back(factors("rope_freqs.weight", std::vector<float>(kPairs, 8)));
  linear.set("llama.rope.scaling.factor", value(8.0f));
  EXPECT_EQ(Loaded(ones).rope().inverse_frequency, Loaded(tiny()).rope().inverse_frequency);
  EXPECT_EQ(Loaded(eights).rope().inverse_frequency, Loaded(linear).rope().inverse_frequency);
}

// Proportional rotation keeps the whole head as denominator and as pairing distance; ordinary partial rotation neither.
TEST(Rope, proportional_and_partial_rotation_differ_in_pairing_and_angles) {
  const program::Rope proportional = make_rope({.rotated = 8, .base = 10000, .divisors = {1, 1e30f, 1e30f, 1e30f}});
  EXPECT_EQ(proportional.pair_distance, 4u);
  EXPECT_THAT(proportional.inverse_frequency,
              ElementsAre(1, testing::Lt(1e-29), testing::Lt(1e-29), testing::Lt(1e-29)));
  const program::Rope partial = make_rope({.rotated = 2, .base = 10000});
  EXPECT_EQ(partial.pair_distance, 1u);
  EXPECT_THAT(partial.inverse_frequency, ElementsAre(1));
}

struct Refusal {
  const char* name;
  void (*change)(RawGguf&);
  const char* words;
};
const Refusal kRefusals[] = {
    {"unknown_kind", [](RawGguf& f) { f.set("llama.rope.scaling.type", value("dynamic")); },
     "llama.rope.scaling.type: 'dynamic' is not supported (none, linear, yarn and longrope are)"},
    {"kind_as_number", [](RawGguf& f) { f.set("llama.rope.scaling.type", value(uint32_t{2})); },
     "llama.rope.scaling.type"},
    {"longrope_without_factors", [](RawGguf& f) { f.set("llama.rope.scaling.type", value("longrope")); },
     "'rope_factors_short.weight' is missing"},
    {"one_of_two_factors",
     [](RawGguf& f) {
       make_longrope(f);
       f.remove_tensor("rope_factors_long.weight");
     },
     "'rope_factors_long.weight' is missing"},
    {"factors_of_another_length",
     [](RawGguf& f) {
       make_longrope(f);
       f.remove_tensor("rope_factors_long.weight");
       f.tensors.push_back(factors("rope_factors_long.weight", {1, 2, 3}));
     },
     "'rope_factors_long.weight' is 3"},
    {"a_factor_of_zero",
     [](RawGguf& f) { f.tensors.push_back(factors("rope_freqs.weight", {1, 1, 1, 1, 1, 0, 1, 1})); },
     "'rope_freqs.weight' holds 0"},
    {"long_rope_factors_and_another_kind",
     [](RawGguf& f) {
       make_longrope(f);
       f.set("llama.rope.scaling.type", value("linear"));
     },
     "llama.rope.scaling.type: 'linear', but the file has tensor 'rope_factors_long.weight'"},
    {"two_kinds_of_factors",
     [](RawGguf& f) {
       make_longrope(f);
       f.tensors.push_back(factors("rope_freqs.weight", kShort));
     },
     "'rope_freqs.weight' and 'rope_factors_long.weight' contradict"},
    {"long_rope_without_its_original_context",
     [](RawGguf& f) {
       make_longrope(f);
       f.remove("llama.rope.scaling.original_context_length");
     },
     "llama.rope.scaling.original_context_length: the key is missing"},
    {"betas_the_wrong_way_round",
     [](RawGguf& f) {
       make_yarn(f, 1e4f, 4, 128);
       f.set("llama.rope.scaling.yarn_beta_slow", value(64.0f));
     },
     "llama.rope.scaling.yarn_beta_fast: 32 is below"},
    {"yarn_of_base_one", [](RawGguf& f) { make_yarn(f, 1, 4, 128); }, "llama.rope.freq_base: YaRN"},
    {"a_factor_not_a_number", [](RawGguf& f) { f.set("llama.rope.scaling.factor", value(std::nanf(""))); },
     "llama.rope.scaling.factor"},
    {"a_factor_below_one", [](RawGguf& f) { f.set("llama.rope.scaling.factor", value(1e-30f)); },
     "llama.rope.scaling.factor: 1.0000000031710769e-30 would shrink"},
    {"an_old_factor_below_one", [](RawGguf& f) { f.set("llama.rope.scale_linear", value(0.5f)); },
     "llama.rope.scale_linear: 0.5 would shrink"},
    {"magnitude_of_zero",
     [](RawGguf& f) {
       make_yarn(f, 1e4f, 4, 128);
       f.set("llama.rope.scaling.attn_factor", value(0.0f));
     },
     "llama.rope.scaling.attn_factor"},
    {"odd_dimensions", [](RawGguf& f) { f.set("llama.rope.dimension_count", value(uint32_t{15})); },
     "llama.rope.dimension_count: 15 is odd"},
    {"more_dimensions_than_the_head", [](RawGguf& f) { f.set("llama.rope.dimension_count", value(uint32_t{18})); },
     "llama.rope.dimension_count: 18 is outside 2..16"},
    {"no_dimensions", [](RawGguf& f) { f.set("llama.rope.dimension_count", value(uint32_t{0})); },
     "llama.rope.dimension_count"},
};

class RopeRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(RopeRefusals, name_the_key_or_tensor) {
  RawGguf raw = tiny();
  GetParam().change(raw);
  EXPECT_THAT(Loaded(raw).error, HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(Table, RopeRefusals, testing::ValuesIn(kRefusals),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Base *and* scaling belong to the kind of layer: the file's factor may not reach the sliding layers.
TEST(Rope, gemma3_scales_full_layers_only) {
  RawGguf raw = read_raw(golden_path("gemma3", ".gguf"));
  const Loaded plain(raw);
  raw.set("gemma3.rope.scaling.type", value("linear"));
  raw.set("gemma3.rope.scaling.factor", value(8.0f));
  const Loaded scaled(raw);
  ASSERT_EQ(scaled.error, "");
  size_t full_layers = 0, sliding_layers = 0;
  for (size_t i = 0; i < scaled.model.program.steps.size(); ++i) {
    const auto* attend = std::get_if<program::Attend>(&scaled.model.program.steps[i].op);
    if (attend == nullptr) continue;
    const auto& frequencies = scaled.rope(*attend->rope).inverse_frequency;
    const double expected = std::pow(attend->window == 0 ? 1e6 : 1e4, -2.0 / (2.0 * double(frequencies.size())));
    EXPECT_NEAR(frequencies[1] / expected, attend->window == 0 ? 0.125 : 1, 1e-9);
    ++(attend->window == 0 ? full_layers : sliding_layers);
  }
  EXPECT_GT(full_layers, 0u);
  EXPECT_GT(sliding_layers, full_layers);
}

// Fixed by the architecture: the converter permutes the files of some families for adjacent pairs.
TEST(Rope, pairing_is_that_of_the_architecture) {
  constexpr std::array<std::string_view, 4> kInterleaved = {"llama", "mistral3", "smollm3", "granite"};
  const auto interleaved = [&](const std::string& architecture) {
    return std::ranges::find(kInterleaved, architecture) != kInterleaved.end();
  };
  const auto check = [&](const GoldenFamily& family) {
    const auto file = gguf::File::open(golden_path(family.name, ".gguf"));
    ASSERT_TRUE(file);
    const auto model = load(*file);
    ASSERT_TRUE(model) << model.error().message;
    for (const program::Rope& rope : model->program.ropes)
      EXPECT_EQ(rope.interleaved, interleaved(model->summary.architecture)) << family.name;
  };
  std::ranges::for_each(kGoldenFamilies, check);
}

}  // namespace
}  // namespace honeycrisp::model
