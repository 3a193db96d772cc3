// For the tests of this room: the files of tests/data/quants (see the README there) and comparison of f32 by bits.
#pragma once

#include "quant/formats.h"

#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace honeycrisp::quant {

/// tests/data/quants/<stem>.<extension>, in lower case.
inline std::filesystem::path golden_path(std::string name) {
  for (char& c : name) c = char(std::tolower(static_cast<unsigned char>(c)));
  return std::filesystem::path(HONEYCRISP_TEST_DATA) / "quants" / name;
}

template <class T>
std::vector<T> read_golden(const std::string& name) {
  std::ifstream file(golden_path(name), std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_FALSE(bytes.empty()) << golden_path(name);
  EXPECT_EQ(bytes.size() % sizeof(T), 0u) << golden_path(name);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// Equal bits, or both NaN: the sign and payload of a NaN differ between processors.
inline bool same_float(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

inline void expect_same_floats(std::span<const float> actual, std::span<const float> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(same_float(actual[i], expected[i])) << "element " << i << ": " << actual[i] << ", not " << expected[i];
  }
}

/// Names the cases of a suite that has a Format as parameter.
inline std::string format_test_name(const testing::TestParamInfo<Format>& p) { return std::string(to_string(p.param)); }

inline std::vector<Format> all_formats() {
  std::vector<Format> formats;
  for (const FormatInfo& f : kFormats) formats.push_back(f.format);
  return formats;
}

}  // namespace honeycrisp::quant
