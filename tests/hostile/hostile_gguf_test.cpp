// The reader against every named hostile file, every truncation and every change of one byte.
#include "support/hostile_gguf.h"

#include "base/text_escape.h"
#include "gguf/file.h"
#include "support/allocations.h"
#include "support/read_everything.h"
#include "support/temporary_folder.h"
#include "support/tiny_gguf.h"

#include <algorithm>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

namespace honeycrisp::test_support {
void PrintTo(const HostileCase& c, std::ostream* out) { *out << c.name; }
}  // namespace honeycrisp::test_support

namespace honeycrisp::gguf {
namespace {

using namespace test_support;

/// A reader of half a megabyte needs its tables of names, and no more.
constexpr size_t kMemoryLimit = 2u << 20;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

class HostileFile : public testing::TestWithParam<HostileCase> {};

void check(const HostileCase& c, bool mmap) {
  const TemporaryFolder folder;
  const std::string path = folder.write(std::string(c.name) + ".gguf", c.make());
  const size_t allocated_before = allocated_bytes();
  const auto begin = std::chrono::steady_clock::now();
  const Result<File> file = File::open(path, {.mmap = mmap});
  const auto taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(allocated_bytes() - allocated_before, kMemoryLimit);
  EXPECT_LT(taken, std::chrono::seconds(1));
  if (c.verdict != Verdict::kRefused) {
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_GT(file->tensors().size(), 0u);
    return;
  }
  ASSERT_FALSE(file);
  const std::string& message = file.error().message;
  EXPECT_NE(c.words, "") << "a case that is refused must say by which words: " << message;
  EXPECT_THAT(message, testing::HasSubstr(c.words));
  EXPECT_THAT(message, testing::StartsWith(folder.path()));
  EXPECT_EQ(message, escape_for_display(message)) << "the message must be one printable line";
  EXPECT_LT(message.size(), 700u);
}

TEST_P(HostileFile, mapped) { check(GetParam(), true); }
TEST_P(HostileFile, read) { check(GetParam(), false); }

INSTANTIATE_TEST_SUITE_P(Table, HostileFile, testing::ValuesIn(hostile_cases().begin(), hostile_cases().end()),
                         [](const testing::TestParamInfo<HostileCase>& tested) {
                           std::string name(tested.param.name);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(HostileNames, are_unique) {
  std::vector<std::string_view> names;
  for (const HostileCase& c : hostile_cases()) names.push_back(c.name);
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

TEST(HostileSweep, every_truncation_is_refused) {
  const std::string whole = one_of_each().bytes();
  ASSERT_TRUE(parse(bytes_of(whole), "whole"));
  for (size_t size = 0; size < whole.size(); ++size) {
    // a copy of its own, so that a sanitizer sees a read past the end
    const std::vector<char> part(whole.begin(), whole.begin() + ptrdiff_t(size));
    EXPECT_FALSE(parse(std::as_bytes(std::span(part)), "part")) << size << " of " << whole.size();
  }
}

TEST(HostileSweep, every_change_of_one_byte_is_refused_or_safe_to_read) {
  const std::string original = one_of_each().bytes();
  std::vector<char> bytes(original.begin(), original.end());
  uint64_t sum = 0, accepted = 0;
  for (char& byte : bytes) {
    const char kept = byte;
    for (int v = 0; v < 256; ++v) {
      byte = char(v);
      const auto file = parse(std::as_bytes(std::span(bytes)), "changed");
      if (!file) continue;
      ++accepted;
      sum += read_everything(*file);
    }
    byte = kept;
  }
  EXPECT_GT(accepted, original.size());  // at least each unchanged file
  EXPECT_NE(sum, 0u);
}

TEST(HostileSweep, every_truncation_of_a_models_header_is_refused) {
  const std::string whole = tiny_llama().bytes();
  const auto header = parse(bytes_of(whole), "whole");
  ASSERT_TRUE(header) << header.error().message;
  for (size_t size = 0; size < header->data_offset; size += 7)
    EXPECT_FALSE(parse(bytes_of(whole).first(size), "part")) << size;
}

}  // namespace
}  // namespace honeycrisp::gguf
