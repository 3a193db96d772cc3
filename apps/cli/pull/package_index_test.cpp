#include "cli/pull/package_index.h"

#include <gtest/gtest.h>

namespace honeycrisp::cli {
namespace {

TEST(PipConfig, IndexUrlOfTheGlobalSection) {
  EXPECT_EQ(index_url_in_pip_config("[global]\nindex-url = https://mirror/simple\n"), "https://mirror/simple");
  EXPECT_EQ(index_url_in_pip_config("[global]\r\nindex_url: https://mirror/simple \r\n"), "https://mirror/simple");
  EXPECT_EQ(index_url_in_pip_config("# [global]\n[global]\n; index-url = a\nindex-url = b\nindex-url = c"), "c");
}

TEST(PipConfig, OtherSectionsAndKeysAreNotTaken) {
  EXPECT_EQ(index_url_in_pip_config("[install]\nindex-url = a\n[global]\nextra-index-url = b\n"), std::nullopt);
  EXPECT_EQ(index_url_in_pip_config("index-url = a\n"), std::nullopt);
  EXPECT_EQ(index_url_in_pip_config("[global]\nindex-url =\n"), std::nullopt);
  EXPECT_EQ(index_url_in_pip_config(""), std::nullopt);
}

constexpr const char* kList = R"({"files": [7, {"filename": "a.whl"}, {"filename": "b.whl", "url": "../../f/b.whl",
  "size": 12, "hashes": {"sha256": "00ff"}}, {"filename": "c.whl", "url": "https://h/c.whl", "size": -1, "hashes": []}]})";

TEST(PackageList, FileIsFoundByItsExactName) {
  const auto file = find_in_package_list(kList, "https://index/simple/p/", "b.whl");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->url, "https://index/f/b.whl");
  EXPECT_EQ(file->sha256, "00ff");
  EXPECT_EQ(file->bytes, 12u);
}

TEST(PackageList, FieldsThatMakeNoSenseAreLeftOut) {
  const auto file = find_in_package_list(kList, "https://index/simple/p/", "c.whl");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->sha256, "");
  EXPECT_EQ(file->bytes, std::nullopt);
}

TEST(PackageList, AbsentFilesAndOtherDocumentsAreErrors) {
  EXPECT_EQ(find_in_package_list(kList, "https://i/", "a.whl").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(find_in_package_list(kList, "https://i/", "B.whl").error().code, ErrorCode::kNotFound);
  for (const char* text : {"", "<html>", "[]", "{}", R"({"files": {}})"})
    EXPECT_EQ(find_in_package_list(text, "https://i/", "a.whl").error().code, ErrorCode::kUnsupported) << text;
}

}  // namespace
}  // namespace honeycrisp::cli
