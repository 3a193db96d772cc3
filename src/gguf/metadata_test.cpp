#include "gguf/metadata.h"

#include "gguf/file.h"
#include "support/tiny_gguf.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace honeycrisp::gguf {
namespace {

using test_support::RawGguf;
using test_support::value;
using testing::HasSubstr;

/// A file with nothing but metadata, and the view of it.
struct Parsed {
  explicit Parsed(const RawGguf& file)
      : bytes(file.bytes()), header(parse(std::as_bytes(std::span(bytes)), "m.gguf")) {}
  const Metadata& metadata() const { return header->metadata; }
  const Value& operator[](std::string_view key) const { return *header->metadata.find(key); }
  std::string bytes;
  Result<Header> header;
};

constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
constexpr uint64_t kMax64 = std::numeric_limits<uint64_t>::max();

TEST(Metadata, integers_convert_when_they_fit) {
  RawGguf file;
  file.set("u8", value(uint8_t{255}));
  file.set("i8", value(int8_t{-128}));
  file.set("u16", value(uint16_t{65535}));
  file.set("i16", value(int16_t{-1}));
  file.set("u64", value(kMax64));
  file.set("i64", value(kMin64));
  file.set("yes", value(true));
  const Parsed p(file);
  EXPECT_EQ(p["u8"].as_int(), 255);
  EXPECT_EQ(p["i8"].as_int(), -128);
  EXPECT_EQ(p["i8"].as_uint(), std::nullopt);
  EXPECT_EQ(p["u16"].as_uint(), 65535u);
  EXPECT_EQ(p["i16"].as_int(), -1);
  EXPECT_EQ(p["u64"].as_uint(), kMax64);
  EXPECT_EQ(p["u64"].as_int(), std::nullopt);
  EXPECT_EQ(p["u64"].as_float(), 0x1p64);
  EXPECT_EQ(p["i64"].as_int(), kMin64);
  EXPECT_EQ(p["i64"].as_uint(), std::nullopt);
  EXPECT_EQ(p["yes"].as_uint(), 1u);
  EXPECT_EQ(p["yes"].as_bool(), true);
  EXPECT_EQ(p["u8"].as_bool(), std::nullopt);
  EXPECT_EQ(p["yes"].as_string(), std::nullopt);
}

TEST(Metadata, floats_and_strings_are_no_integers) {
  RawGguf file;
  file.set("f32", value(1.0f));
  file.set("f64", value(0.1));
  file.set("text", value("1"));
  const Parsed p(file);
  EXPECT_EQ(p["f32"].as_int(), std::nullopt);
  EXPECT_EQ(p["f32"].as_uint(), std::nullopt);
  EXPECT_EQ(p["f32"].as_bool(), std::nullopt);
  EXPECT_EQ(p["f32"].as_float(), 1.0);
  EXPECT_EQ(p["f64"].as_float(), 0.1);
  EXPECT_EQ(p["text"].as_int(), std::nullopt);
  EXPECT_EQ(p["text"].as_float(), std::nullopt);
  EXPECT_EQ(p["text"].as_string(), "1");
  EXPECT_EQ(p["text"].size(), 1u);
}

TEST(Metadata, arrays_are_read_by_element_and_not_as_scalars) {
  RawGguf file;
  file.set("ints", value(std::vector<int16_t>{-1, 2}));
  file.set("floats", value(std::vector<float>{0.5f}));
  file.set("bools", value(std::vector<bool>{false, true}));
  file.set("texts", value(std::vector<std::string>{"a", std::string("\0\xff", 2)}));
  file.set("none", value(std::vector<uint32_t>{}));
  file.set("scalar", value(7));
  const Parsed p(file);
  EXPECT_TRUE(p["ints"].is_array());
  EXPECT_EQ(p["ints"].element_type(), ValueType::kInt16);
  EXPECT_EQ(p["ints"].as_int(), std::nullopt);
  EXPECT_EQ(p["ints"].int_at(0), -1);
  EXPECT_EQ(p["ints"].uint_at(0), std::nullopt);
  EXPECT_EQ(p["ints"].uint_at(1), 2u);
  EXPECT_EQ(p["ints"].int_at(2), std::nullopt);
  EXPECT_EQ(p["ints"].float_at(1), 2.0);
  EXPECT_EQ(p["floats"].float_at(0), 0.5);
  EXPECT_EQ(p["floats"].int_at(0), std::nullopt);
  EXPECT_EQ(p["bools"].int_at(1), 1);
  EXPECT_EQ(p["texts"].string_at(1), std::string_view("\0\xff", 2));
  EXPECT_EQ(p["texts"].string_at(2), std::nullopt);
  EXPECT_EQ(p["texts"].int_at(0), std::nullopt);
  EXPECT_EQ(p["texts"].as_string(), std::nullopt);
  EXPECT_EQ(p["none"].size(), 0u);
  EXPECT_EQ(p["none"].int_at(0), std::nullopt);
  EXPECT_EQ(p["scalar"].int_at(0), 7);
  EXPECT_TRUE(p["scalar"].strings().empty());
}

TEST(Metadata, require_and_get_name_file_key_and_kind) {
  RawGguf file;
  file.set("minus", value(-3));
  file.set("number", value(3u));
  file.set("text", value("x"));
  const Parsed p(file);
  const Metadata& m = p.metadata();
  EXPECT_EQ(m.require_uint("number").value(), 3u);
  EXPECT_EQ(m.require_float("number").value(), 3.0);
  EXPECT_EQ(m.require_string("text").value(), "x");
  EXPECT_EQ(m.get_uint("absent", 9).value(), 9u);
  EXPECT_EQ(m.get_bool("absent", true).value(), true);
  EXPECT_EQ(m.get_float("absent", 0.5).value(), 0.5);
  EXPECT_EQ(m.get_string("absent", "d").value(), "d");
  EXPECT_EQ(m.require_uint("absent").error().message, "m.gguf: key 'absent' is missing");
  EXPECT_EQ(m.require_uint("minus").error().message,
            "m.gguf: key 'minus' must be a non-negative integer, but is the int32 -3");
  EXPECT_EQ(m.get_uint("text", 1).error().message,
            "m.gguf: key 'text' must be a non-negative integer, but is of type string");
  EXPECT_EQ(m.get_bool("number", true).error().message, "m.gguf: key 'number' must be a bool, but is the uint32 3");
  EXPECT_THAT(m.require_string("number").error().message, HasSubstr("must be a string"));
}

TEST(Metadata, vocabulary_of_262144_is_parsed_in_under_a_tenth_of_a_second) {
  constexpr size_t kTokens = 262144;
  RawGguf file;
  std::vector<std::string> tokens;
  for (size_t i = 0; i < kTokens; ++i) tokens.push_back("token " + std::to_string(i));
  file.set("tokenizer.ggml.tokens", value(tokens));
  file.set("tokenizer.ggml.scores", value(std::vector<float>(kTokens, -1.0f)));
  file.set("tokenizer.ggml.token_type", value(std::vector<int32_t>(kTokens, 1)));
  const std::string bytes = file.bytes();
  auto fastest = std::chrono::steady_clock::duration::max();
  for (int run = 0; run < 3; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    const auto header = parse(std::as_bytes(std::span(bytes)), "m.gguf");
    fastest = std::min(fastest, std::chrono::steady_clock::now() - begin);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->metadata.find("tokenizer.ggml.tokens")->strings()[kTokens - 1], tokens.back());
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(100));
}

TEST(Metadata, number_of_keys_is_limited) {
  RawGguf file;
  for (uint64_t i = 0; i < kMaxKeyValues; ++i) file.entries.push_back({"k" + std::to_string(i), value(uint8_t{1})});
  const Parsed most(file);
  ASSERT_TRUE(most.header) << most.header.error().message;
  EXPECT_EQ(most["k65535"].as_uint(), 1u);
  file.entries.push_back({"one more", value(uint8_t{1})});
  const Parsed more(file);
  ASSERT_FALSE(more.header);
  EXPECT_EQ(more.header.error().message, "m.gguf: 65537 keys are declared, at most 65536 are supported");
}

TEST(NameIndex, finds_names_and_the_first_duplicate) {
  NameIndex index;
  for (const char* name : {"b", "a", "", "c", "a"}) index.add(name);
  index.sort();
  EXPECT_EQ(index.find("b"), 0u);
  EXPECT_EQ(index.find(""), 2u);
  EXPECT_EQ(index.find("c"), 3u);
  EXPECT_EQ(index.find("d"), std::nullopt);
  const auto twice = index.find_duplicate();
  ASSERT_TRUE(twice);
  EXPECT_EQ(twice->first, 1u);
  EXPECT_EQ(twice->second, 4u);
}

TEST(NameIndex, empty_index_finds_nothing) {
  NameIndex index;
  index.sort();
  EXPECT_EQ(index.find("a"), std::nullopt);
  EXPECT_FALSE(index.find_duplicate());
}

}  // namespace
}  // namespace honeycrisp::gguf
