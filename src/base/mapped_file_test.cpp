#include "base/mapped_file.h"

#include "support/temporary_folder.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace honeycrisp {
namespace {

using testing::HasSubstr;

class MappedFileTest : public testing::TestWithParam<MappedFile::Mode> {
 protected:
  static std::string text_of(const MappedFile& file) {
    const auto bytes = file.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string error_of(const std::string& path) const {
    const auto file = MappedFile::open(path, GetParam());
    return file ? "opened" : file.error().message;
  }

  const test_support::TemporaryFolder folder_;
};

TEST_P(MappedFileTest, holds_the_bytes_of_the_file) {
  const std::string text = std::string(10000, 'x') + "end";
  const std::string path = folder_.write("a \xf0\x9f\x99\x82.bin", text);
  const auto file = MappedFile::open(path, GetParam());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(text_of(*file), text);
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->mapped(), GetParam() == MappedFile::Mode::kMap);
}

TEST_P(MappedFileTest, whole_pages_belong_to_the_file) {
  const auto page = size_t(::sysconf(_SC_PAGESIZE));
  const auto file = MappedFile::open(folder_.write("odd", std::string(page + 1, 'o')), GetParam());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->bytes().data()) % page, 0u);
  const auto* last = file->bytes().data() + page;
  EXPECT_TRUE(std::all_of(last + 1, last + page, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_P(MappedFileTest, empty_file_has_no_bytes) {
  const auto file = MappedFile::open(folder_.write("empty", ""), GetParam());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->bytes().empty());
}

TEST_P(MappedFileTest, moving_takes_the_bytes_along) {
  auto first = MappedFile::open(folder_.write("1", "one"), GetParam()),
       second = MappedFile::open(folder_.write("2", "two"), GetParam());
  ASSERT_TRUE(first && second);
  MappedFile taken = std::move(*first);
  EXPECT_EQ(text_of(taken), "one");
  taken = std::move(*second);
  EXPECT_EQ(text_of(taken), "two");
}

TEST_P(MappedFileTest, released_pages_read_the_same_again) {
  const std::string text(1 << 20, 'r');
  const auto file = MappedFile::open(folder_.write("big", text), GetParam());
  ASSERT_TRUE(file);
  file->release(100, text.size());  // longer than the file
  file->release(text.size() + 1, 5);
  file->release(0, size_t(-1));
  EXPECT_EQ(text_of(*file), text);
}

TEST_P(MappedFileTest, what_is_not_a_regular_file_is_refused_at_once) {
  const std::string fifo = folder_.path_of("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(error_of(folder_.path()), HasSubstr("is a directory"));
  EXPECT_THAT(error_of(fifo), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of(folder_.path_of("\x1b\xff")), HasSubstr("\\x1b\\xff: cannot open: No such file"));
  EXPECT_THAT(error_of(folder_.write("file", "x") + "/below"), HasSubstr("Not a directory"));
  EXPECT_THAT(error_of(folder_.path_of({"file\0.gguf", 10})), HasSubstr("NUL"));
  EXPECT_THAT(error_of(""), HasSubstr("the path is empty"));
}

TEST_P(MappedFileTest, missing_file_is_not_found) {
  EXPECT_EQ(MappedFile::open(folder_.path_of("none"), GetParam()).error().code, ErrorCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Modes, MappedFileTest, testing::Values(MappedFile::Mode::kMap, MappedFile::Mode::kRead),
                         [](const auto& tested) { return tested.param == MappedFile::Mode::kMap ? "map" : "read"; });

}  // namespace
}  // namespace honeycrisp
