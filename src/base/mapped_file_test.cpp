#include "base/mapped_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace honeycrisp {
namespace {

using testing::HasSubstr;

class MappedFileTest : public testing::TestWithParam<MappedFile::Mode> {
 protected:
  MappedFileTest() : folder_((std::filesystem::temp_directory_path() / "honeycrisp-XXXXXX").string()) {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }
  static std::string text_of(const MappedFile& file) {
    const auto bytes = file.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string error_of(const std::string& path) const {
    const auto file = MappedFile::open(path, GetParam());
    return file ? "opened" : file.error().message;
  }

  std::string folder_;
};

TEST_P(MappedFileTest, holds_the_bytes_of_the_file) {
  const std::string text = std::string(10000, 'x') + "end";
  const std::string path = write("a \xf0\x9f\x99\x82.bin", text);
  const auto file = MappedFile::open(path, GetParam());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(text_of(*file), text);
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->mapped(), GetParam() == MappedFile::Mode::kMap);
}

TEST_P(MappedFileTest, empty_file_has_no_bytes) {
  const auto file = MappedFile::open(write("empty", ""), GetParam());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->bytes().empty());
}

TEST_P(MappedFileTest, moving_takes_the_bytes_along) {
  auto first = MappedFile::open(write("1", "one"), GetParam()),
       second = MappedFile::open(write("2", "two"), GetParam());
  ASSERT_TRUE(first && second);
  MappedFile taken = std::move(*first);
  EXPECT_EQ(text_of(taken), "one");
  taken = std::move(*second);
  EXPECT_EQ(text_of(taken), "two");
}

TEST_P(MappedFileTest, released_pages_read_the_same_again) {
  const std::string text(1 << 20, 'r');
  const auto file = MappedFile::open(write("big", text), GetParam());
  ASSERT_TRUE(file);
  file->release(100, text.size());  // longer than the file
  file->release(text.size() + 1, 5);
  file->release(0, size_t(-1));
  EXPECT_EQ(text_of(*file), text);
}

TEST_P(MappedFileTest, what_is_not_a_regular_file_is_refused_at_once) {
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(error_of(folder_), HasSubstr("is a directory"));
  EXPECT_THAT(error_of(fifo), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of(folder_ + "/\x1b\xff"), HasSubstr("\\x1b\\xff: cannot open: No such file"));
  EXPECT_THAT(error_of(write("file", "x") + "/below"), HasSubstr("Not a directory"));
  EXPECT_THAT(error_of(folder_ + std::string("/file\0.gguf", 11)), HasSubstr("NUL"));
}

TEST_P(MappedFileTest, missing_file_is_not_found) {
  EXPECT_EQ(MappedFile::open(folder_ + "/none", GetParam()).error().code, ErrorCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Modes, MappedFileTest, testing::Values(MappedFile::Mode::kMap, MappedFile::Mode::kRead),
                         [](const auto& tested) { return tested.param == MappedFile::Mode::kMap ? "map" : "read"; });

}  // namespace
}  // namespace honeycrisp
