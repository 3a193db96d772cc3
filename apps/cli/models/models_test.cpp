#include "cli/models/paths.h"
#include "cli/models/resolve.h"
#include "cli/models/sources.h"
#include "cli/models/store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace honeycrisp::cli {
namespace {

namespace fs = std::filesystem;

/// A folder of its own as cache, and as the current folder.
class ModelNames : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "honeycrisp-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    previous_ = fs::current_path();
    fs::current_path(folder_);
    ::setenv("HONEYCRISP_CACHE", (folder_ / "cache").c_str(), 1);
    fs::create_directories(folder_ / "cache" / "models");
  }
  void TearDown() override {
    fs::current_path(previous_);
    fs::remove_all(folder_);
    ::unsetenv("HONEYCRISP_CACHE");
  }
  std::string put(const std::string& name) {
    std::ofstream(folder_ / name) << "GGUF";
    return name;
  }
  std::string in_cache(const std::string& file) { return (folder_ / "cache" / "models" / file).string(); }

  fs::path folder_, previous_;
};

TEST_F(ModelNames, PathOfAFileIsTakenAsItIs) {
  put("plain");
  put("with space.gguf");
  EXPECT_EQ(resolve_model("plain").value(), "plain");
  EXPECT_EQ(resolve_model("./with space.gguf").value(), "./with space.gguf");
}

TEST_F(ModelNames, NameOfAPulledModelIsItsFile) {
  put("cache/models/pear.gguf");
  put("cache/models/smollm2-135m-instruct-q4_1.gguf");
  EXPECT_EQ(resolve_model("pear").value(), in_cache("pear.gguf"));
  EXPECT_EQ(resolve_model("smollm2").value(), in_cache("smollm2-135m-instruct-q4_1.gguf"));
  EXPECT_EQ(resolve_model_or_default(std::nullopt).value(), in_cache("smollm2-135m-instruct-q4_1.gguf"));
}

TEST_F(ModelNames, FileWinsOverNameAndNameOverFolder) {
  put("cache/models/pear.gguf");
  fs::create_directory("pear");
  EXPECT_EQ(resolve_model("pear").value(), in_cache("pear.gguf"));
  fs::remove("pear");
  put("pear");
  EXPECT_EQ(resolve_model("pear").value(), "pear");
}

TEST_F(ModelNames, ErrorsSayWhatToDo) {
  EXPECT_NE(resolve_model("gemma3-270m").error().message.find("honeycrisp pull gemma3-270m"), std::string::npos);
  EXPECT_NE(resolve_model("absent").error().message.find("smollm2"), std::string::npos);
  EXPECT_NE(resolve_model("absent.gguf").error().message.find("no such file"), std::string::npos);
  EXPECT_NE(resolve_model("cache").error().message.find("is a directory"), std::string::npos);
  EXPECT_FALSE(resolve_model(""));
  EXPECT_FALSE(resolve_model("../cache/models/../../absent"));
}

TEST_F(ModelNames, ManifestIsBelievedOnlyForAFileOfItsSize) {
  put("cache/models/pear.gguf");
  const ModelStore store(in_cache("").substr(0, in_cache("").size() - 1));
  StoredModel model = store.find("pear").value();
  EXPECT_EQ(model.sha256, "");
  model.sha256 = "ab";
  model.source = "https://example.org/pear.gguf";
  ASSERT_TRUE(store.write_manifest(model));
  EXPECT_EQ(store.find("pear.gguf")->source, model.source);
  std::ofstream(model.path, std::ios::app) << "more";
  EXPECT_EQ(store.find("pear")->sha256, "");
  ASSERT_TRUE(store.remove(model));
  EXPECT_TRUE(store.list().empty());
  EXPECT_TRUE(fs::is_empty(store.folder()));
}

TEST(ModelFileNames, OnlyPlainNamesAreSafe) {
  for (const char* name : {"a.gguf", "Model-1.5_B+x.Q4_K.gguf"}) EXPECT_TRUE(is_safe_model_file_name(name)) << name;
  for (const char* name : {"", ".gguf", "..gguf", "a", "a.gguf/", "../a.gguf", "a/b.gguf", "a\\b.gguf", "-a.gguf",
                           "a b.gguf", "\xc3\xa9.gguf", "a\n.gguf", "a.gguf.part"})
    EXPECT_FALSE(is_safe_model_file_name(name)) << name;
  EXPECT_FALSE(is_safe_model_file_name(std::string(300, 'a') + ".gguf"));
}

TEST(Sources, TableIsConsistent) {
  for (const NamedModel& model : named_models()) {
    uint64_t bytes = 0;
    for (const WheelPart& part : model.parts) bytes += part.bytes;
    EXPECT_EQ(bytes, model.bytes) << model.name;
    EXPECT_EQ(model.sha256.size(), 64u);
    EXPECT_TRUE(is_safe_model_file_name(model.file));
    EXPECT_EQ(find_named_model(model.name), &model);
    EXPECT_EQ(find_named_model_by_file(model.file), &model);
  }
}

}  // namespace
}  // namespace honeycrisp::cli
