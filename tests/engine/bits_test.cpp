// The bits of whole models on the cpu backend against constants: every instruction set of every machine gives them.
// A change of the arithmetic changes the constants; a failing test tells the new ones.
#include "support/bits.h"

#include "backend/cpu/isa/isa.h"
#include "support/golden_families.h"
#include <honeycrisp/engine.h>

#include <cstdlib>
#include <gtest/gtest.h>

namespace honeycrisp {
namespace {

using namespace test_support;

struct Family {
  const char* name;
  uint64_t f32, f16;
};

const Family kFamilies[] = {
    {"llama", 0x13e4489d28e4260c, 0xa8329eed735319b1},        {"llama3-rope", 0x025bb0049a445ff4, 0x617b5b0bde488b8f},
    {"llama-bias", 0xd3a20117e5a0441c, 0x965bab8af3ba9451},   {"mistral", 0xf8e03768ab8e2746, 0xedcca5ac3b7cf7e0},
    {"smollm3", 0x137c0dbb37d808cf, 0x13561516f613cfc6},      {"granite", 0x84a83283ac33d2fe, 0x1904b1cf5117f81e},
    {"granite4", 0xb09fe478e6f105fd, 0x47d3ff490c9768e8},     {"olmo2", 0xc1412a23c0290bb3, 0x2b36ae51f2369f4e},
    {"olmo3", 0xfcb290ba591a0b2f, 0x2dbfb0cc9947be45},        {"phi3", 0xcfcf2a6867f9631f, 0x82f1e95efeda4dba},
    {"phi3-long", 0xef535ba265e48474, 0x2f3c55c98d46c6b0},    {"phi3-short", 0xb33d4e2a576737a3, 0x211ed4224eb92e19},
    {"qwen2", 0x24958b52f7b537ad, 0x4f625fa1fb71a95c},        {"qwen2-yarn", 0x8c985589f7a6c6a7, 0x192ed9ff58e09ba8},
    {"qwen3", 0x23edb93e9ac89d88, 0x85eb7c034eb2bcc9},        {"gemma2", 0xe35fe0d160a13e0d, 0xaddcdd28bd316ee9},
    {"gemma3", 0xc53767eae009b68b, 0x48d09c8ff94ff63b},       {"gemma4", 0xdfcf069d438fde17, 0x3df32991cca318b7},
    {"gemma4-e", 0x18ef11ca01fe58fb, 0x867aa379d83052ac},     {"mistral3", 0xed43600947bfa9e5, 0xe886620a63d58c20},
    {"qwen3moe", 0x3caec12b84fce3ba, 0x33b8e0b3a9b04a5e},     {"qwen2moe", 0xabcf6df007ec043c, 0x9a910f4572d93305},
    {"qwen3moe-all", 0xda4846e712694d76, 0xe519b017cd79eab4}, {"qwen3next", 0xf3bf19d4af56a720, 0xb286f8c93e46dfb9},
    {"qwen35", 0x1f6ca66bb2b44850, 0xa288413ed9e595aa},       {"qwen35moe", 0x437f16588a1d9df8, 0x842ae126da28e869},
    {"gemma4-moe", 0x5cf13f670ca5b4e5, 0xa0007a00e25b1e54},   {"gptoss", 0xa2cf74cb69c0eb29, 0xba20ca79661be728},
    {"gptoss-mxfp4", 0x494aab8379a71275, 0x5c0ee26af5168cfb}, {"mixtral", 0x20ce8af53eba6a37, 0x5de30a105065fa7e},
};

class FamilyBits : public ::testing::TestWithParam<Family> {
 protected:
  ~FamilyBits() override { unsetenv("HONEYCRISP_ISA"); }
};

TEST_P(FamilyBits, are_the_same_on_every_machine) {
  const Family& family = GetParam();
  for (const backend::cpu::Isa* isa : backend::cpu::available_isas()) {
    ASSERT_EQ(setenv("HONEYCRISP_ISA", isa->name, 1), 0);
    for (const auto& [type, expected] : {std::pair("f32", family.f32), std::pair("f16", family.f16)}) {
      const auto engine =
          Engine::load(golden_path(family.name, ".gguf"),
                       {.backend = "cpu", .context = 128, .kv_type = parse_kv_type(type).value(), .threads = 2});
      ASSERT_TRUE(engine) << engine.error().message;
      const uint32_t vocabulary = (*engine)->info().vocabulary;
      std::vector<Token> tokens;
      for (uint32_t i = 0; i < 100; ++i) tokens.push_back(Token(i * i * 7 % vocabulary));
      std::vector<float> logits(tokens.size() * vocabulary);
      Session session = (*engine)->new_session().value();
      ASSERT_TRUE(session.append_all_logits(tokens, logits));
      const uint64_t hash = hash_bits(logits);
      EXPECT_EQ(hash, expected) << family.name << ", " << type << ", " << isa->name << fmt::format(": 0x{:016x}", hash);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyBits, ::testing::ValuesIn(kFamilies),
                         [](const auto& param_info) { return test_name(param_info.param.name); });

TEST(FamilyBits, have_constants_for_each_golden_family) {
  std::vector<std::string_view> here, golden;
  for (const Family& f : kFamilies) here.push_back(f.name);
  for (const GoldenFamily& f : kGoldenFamilies) golden.push_back(f.name);
  EXPECT_EQ(here, golden);
}

}  // namespace
}  // namespace honeycrisp
