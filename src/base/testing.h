// A machine made of files, for what reads /proc and /sys. Only for tests.
#pragma once

#include "support/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

namespace honeycrisp::testing {

class FakeRoot : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }

  const test_support::TemporaryFolder folder_;
  const std::string& root_ = folder_.path();
};

}  // namespace honeycrisp::testing
