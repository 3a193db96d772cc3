#include "quant/formats.h"

#include <gtest/gtest.h>
#include <set>
#include <string>

namespace honeycrisp::quant {
namespace {

TEST(Formats, ids_and_names_are_unique) {
  std::set<Format> ids;
  std::set<std::string_view> names;
  for (const FormatInfo& f : kFormats) {
    EXPECT_TRUE(ids.insert(f.format).second) << f.name;
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
  }
}

TEST(Formats, every_listed_id_is_found_and_no_other) {
  size_t found = 0;
  for (uint32_t id = 0; id < 1000; ++id) {
    const auto format = format_from_id(id);
    if (!format) continue;
    ++found;
    EXPECT_EQ(uint32_t(*format), id);
    EXPECT_EQ(info(*format).format, *format);
  }
  EXPECT_EQ(found, kFormats.size());
  EXPECT_FALSE(format_from_id(4));  // Q4_2, withdrawn from the format
  EXPECT_FALSE(format_from_id(64));
  EXPECT_FALSE(format_from_id(UINT32_MAX));
}

TEST(Formats, kinds_follow_from_the_list) {
  EXPECT_EQ(info(Format::kBF16).kind, FormatKind::kFloat);
  EXPECT_EQ(info(Format::kF64).kind, FormatKind::kFloat);
  EXPECT_EQ(info(Format::kI8).kind, FormatKind::kInteger);
  EXPECT_EQ(info(Format::kIQ1_S).kind, FormatKind::kQuantized);
  EXPECT_EQ(info(Format::kNVFP4).kind, FormatKind::kQuantized);
}

TEST(Formats, row_bytes_counts_blocks) {
  EXPECT_EQ(row_bytes(Format::kF32, 3), 12u);
  EXPECT_EQ(row_bytes(Format::kQ4_0, 64), 36u);
  EXPECT_EQ(row_bytes(Format::kQ6_K, 512), 420u);
  EXPECT_EQ(row_bytes(Format::kQ8_0, 0), 0u);
}

}  // namespace
}  // namespace honeycrisp::quant
