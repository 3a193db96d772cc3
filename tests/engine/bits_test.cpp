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
    {"llama", 0xc91f72fa590eb0ea, 0x381d96569c7276e2},        {"llama3-rope", 0x41f712d810d14ce6, 0x4e65785f331b5727},
    {"llama-bias", 0x3de138def0007c78, 0x4f5a473813992d54},   {"mistral", 0xd0aec6b0512959e3, 0xf817145aae6b3329},
    {"smollm3", 0xdf63b50fcb98ede9, 0xef7a448d56c3c83e},      {"granite", 0x0b2915f8fda8f4de, 0xa4f8d56a10e589a7},
    {"granite4", 0x003a6d1a67036c1d, 0xaef224f9a23ce789},     {"olmo2", 0x4d84cf886cec1204, 0x03311aedb517e19d},
    {"olmo3", 0x5391d2723d690ead, 0x5ff7455067104ccb},        {"phi3", 0xc2acc529b670f007, 0x2ddfc5ddad70a6b4},
    {"phi3-long", 0xd879fe8ce2470a37, 0xf008de96719b5220},    {"phi3-short", 0x090eb65ee8ef8d9b, 0x1f846e7bab9fe3eb},
    {"qwen2", 0x5c3137e566447b47, 0x9de151e91839c9e1},        {"qwen2-yarn", 0x541ef03d04541e4f, 0xf315e79ae8962e9a},
    {"qwen3", 0x42ac1ae374055238, 0x9f0a5539d204b6ad},        {"gemma2", 0x60f7f1cf70dfb8c2, 0xb78d4fda3a084658},
    {"gemma3", 0x737f86b58effe3a8, 0xa980bbb7aa3e4bc8},       {"gemma4", 0xb1ee0bb6538ffa52, 0x9f6531d8e4a3ce89},
    {"gemma4-e", 0xb498addc27641ca5, 0x8f8e1189168c4268},     {"mistral3", 0x64d34d3578691068, 0x058e9ff79bc2f61f},
    {"qwen3moe", 0x3dbba7927461a8c2, 0x48991cc59f6606d6},     {"qwen2moe", 0xc4066fd018099a5e, 0xf92b21ffd0ed4548},
    {"qwen3moe-all", 0x76e173ed2cee86a9, 0x840d0651bae87bde}, {"qwen3next", 0x9c8abc0f60988d19, 0x7e06f5a8dfc3a969},
    {"qwen35", 0x59de3d3f2ca1151e, 0x1ca1e3eed0f62299},       {"qwen35moe", 0x6b5e25cb5e1d951e, 0x404cbf8cc99264a9},
    {"gemma4-moe", 0x8cd86aead8614893, 0xdd32a4e2957fb3b7},   {"gptoss", 0xb22e67908c641cc0, 0xaeca2a13ee95124f},
    {"gptoss-mxfp4", 0x115a7d7e58415229, 0x1469043783e04d01}, {"mixtral", 0xfd9754d41e90508d, 0xa3d694ca991f43bc},
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
