// A folder of a test's own, removed with all its contents when the test ends.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace honeycrisp::test_support {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "honeycrisp-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// Writes a file into the folder and returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream(path_of(name), std::ios::binary) << bytes;
    return path_of(name);
  }

 private:
  std::string path_;
};

}  // namespace honeycrisp::test_support
