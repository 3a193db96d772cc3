#include "cli/pull/url.h"

#include <gtest/gtest.h>

namespace honeycrisp::cli {
namespace {

TEST(Url, HttpsIsAllowedAnywhereAndHttpOnThisMachineOnly) {
  for (const char* url : {"https://example.org/a.gguf", "http://localhost/a", "http://127.0.0.1:8080/a",
                          "http://127.1.2.3/a", "http://[::1]:80/a", "HTTPS://EXAMPLE.ORG/a"})
    EXPECT_TRUE(check_url_allowed(url)) << url;
  for (const char* url :
       {"http://example.org/a", "ftp://localhost/a", "file:///etc/passwd", "http://127.0.0.1.example.org/a",
        "http://localhost.example.org/a", "http://localhost@example.org/a", "http://[::2]/a", "http://10.0.0.1/a", "",
        "a", "https://", "javascript:alert(1)"})
    EXPECT_FALSE(check_url_allowed(url)) << url;
  EXPECT_FALSE(check_url_allowed(std::string("https://example.org/\0a", 22)));
}

TEST(Url, PasswordsAndQueriesAreNotShown) {
  EXPECT_EQ(display_url("https://user:secret@example.org/a.gguf?signature=secret"), "https://example.org/a.gguf");
  EXPECT_EQ(display_url("not a url\x1b[31m"), "not a url\\x1b[31m");
}

TEST(Url, ReferencesAreResolvedAsBrowsersDo) {
  EXPECT_EQ(resolve_url("https://h/simple/p/", "../../files/p.whl").value(), "https://h/files/p.whl");
  EXPECT_EQ(resolve_url("https://h/simple/p/", "https://other/p.whl").value(), "https://other/p.whl");
}

TEST(Url, FileNameIsTheDecodedLastSegment) {
  EXPECT_EQ(url_file_name("https://h/a/b%20c.gguf?x=1#y"), "b c.gguf");
  EXPECT_EQ(url_file_name("https://h/a/..%2Fb"), "../b");
  EXPECT_EQ(url_file_name("https://h/"), "");
}

}  // namespace
}  // namespace honeycrisp::cli
