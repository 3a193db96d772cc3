#include "gguf/file.h"

#include "support/temporary_folder.h"
#include "support/tiny_gguf.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace honeycrisp::gguf {
namespace {

using test_support::RawGguf;
using test_support::shard_name;
using test_support::TemporaryFolder;
using test_support::tiny_llama;
using test_support::value;
using testing::HasSubstr;

/// Writes the tiny model as `count` files and returns their paths.
std::vector<std::string> write_shards(const TemporaryFolder& folder, uint16_t count, const std::string& prefix = "m") {
  std::vector<std::string> paths;
  for (const RawGguf& shard : test_support::split(tiny_llama(), count))
    paths.push_back(folder.write(shard_name(prefix, paths.size(), count), shard.bytes()));
  return paths;
}

std::string error_of(const std::string& path) {
  const Result<File> file = File::open(path);
  return file ? "opened" : file.error().message;
}

void expect_tiny_model(const File& file) {
  const RawGguf model = tiny_llama();
  ASSERT_EQ(file.tensors().size(), model.tensors.size());
  for (const test_support::RawTensor& expected : model.tensors) {
    const Tensor* tensor = file.find_tensor(expected.name);
    ASSERT_NE(tensor, nullptr) << expected.name;
    const std::string_view data(reinterpret_cast<const char*>(tensor->data), tensor->bytes);
    EXPECT_TRUE(data == expected.data) << expected.name;
  }
  EXPECT_EQ(file.metadata().find("general.architecture")->as_string(), "llama");
}

TEST(File, whole_model_is_read_mapped_and_copied) {
  const TemporaryFolder folder;
  const std::string bytes = tiny_llama().bytes(), path = folder.write("model.gguf", bytes);
  for (const bool mmap : {true, false}) {
    const auto file = File::open(path, {.mmap = mmap});
    ASSERT_TRUE(file) << file.error().message;
    expect_tiny_model(*file);
    EXPECT_EQ(file->version(), 3u);
    EXPECT_EQ(file->file_bytes(), bytes.size());
    ASSERT_EQ(file->shards().size(), 1u);
    EXPECT_EQ(file->shards()[0].mapped(), mmap);
    EXPECT_EQ(file->find_tensor("nope"), nullptr);
    const Tensor& embedding = file->tensors()[0];
    file->release(embedding.data, embedding.bytes);
    EXPECT_EQ(std::to_integer<char>(embedding.data[5]), tiny_llama().tensors[0].data[5]);
  }
}

TEST(File, long_tensor_name_is_found) {
  RawGguf model = tiny_llama();
  const std::string name(5000, 'n');
  model.tensors.push_back({name, 0, {8}, std::string(32, '\0'), {}, {}});
  const TemporaryFolder folder;
  const auto file = File::open(folder.write("model.gguf", model.bytes()));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_NE(file->find_tensor(name), nullptr);
  EXPECT_EQ(file->find_tensor(name)->elements(), 8u);
}

TEST(File, vocabulary_without_tensors_is_legal) {
  const TemporaryFolder folder;
  const auto file = File::open(folder.write("vocab.gguf", test_support::tiny_vocabulary().bytes()));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_GT(file->metadata().find("tokenizer.ggml.tokens")->size(), 256u);
}

TEST(File, paths_with_spaces_emoji_newlines_and_broken_utf8_work) {
  const TemporaryFolder folder;
  for (const char* name : {"a b.gguf", "🙂.gguf", "a\nb.gguf", "bad\xff\xfe.gguf", "no extension"}) {
    const auto file = File::open(folder.write(name, tiny_llama().bytes()));
    EXPECT_TRUE(file) << file.error().message;
    EXPECT_THAT(error_of(folder.write(name, "GG")), HasSubstr("not a GGUF file"));
  }
  EXPECT_THAT(error_of(folder.path_of("bad\xff\n.gguf")), HasSubstr("bad\\xff\\n.gguf: cannot open: No such file"));
}

TEST(File, folders_fifos_and_devices_are_refused_at_once) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.path_of("fifo").c_str(), 0600), 0);
  EXPECT_THAT(error_of(folder.path()), HasSubstr("is a directory"));
  EXPECT_THAT(error_of(folder.path_of("fifo")), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of(""), HasSubstr("the path is empty"));
}

TEST(SplitFile, any_shard_opens_the_set) {
  for (const uint16_t count : {2, 3, 20}) {
    const TemporaryFolder folder;
    for (const std::string& path : write_shards(folder, count)) {
      const auto file = File::open(path);
      ASSERT_TRUE(file) << file.error().message;
      expect_tiny_model(*file);
      EXPECT_EQ(file->shards().size(), count);
      EXPECT_EQ(file->tensors().back().shard, count - 1u);
    }
  }
}

TEST(SplitFile, shards_may_differ_in_alignment_and_the_first_may_be_empty) {
  const TemporaryFolder folder;
  auto shards = test_support::split(tiny_llama(), 2);
  shards[1].tensors.insert(shards[1].tensors.begin(), shards[0].tensors.begin(), shards[0].tensors.end());
  shards[0].tensors.clear();
  shards[1].set_alignment(4096);
  folder.write("m-00001-of-00002.gguf", shards[0].bytes());
  const auto file = File::open(folder.write("m-00002-of-00002.gguf", shards[1].bytes()));
  ASSERT_TRUE(file) << file.error().message;
  expect_tiny_model(*file);
  EXPECT_EQ(file->tensors()[1].file_offset % 4096, 0u);
}

TEST(SplitFile, missing_shard_is_named) {
  for (const size_t missing : {0, 1, 2}) {
    const TemporaryFolder folder;
    const auto paths = write_shards(folder, 3);
    std::filesystem::remove(paths[missing]);
    const std::string name = shard_name("m", missing, 3);
    for (size_t i = 0; i < paths.size(); ++i) {
      if (i == missing) continue;
      const auto file = File::open(paths[i]);
      ASSERT_FALSE(file);
      EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
      EXPECT_THAT(file.error().message, HasSubstr("/" + name + ": cannot open: No such file"));
      EXPECT_THAT(file.error().message, HasSubstr("of the 3 that '" + shard_name("m", i, 3) + "' belongs to"));
    }
  }
}

TEST(SplitFile, renamed_shard_says_what_was_expected) {
  const TemporaryFolder folder;
  const auto paths = write_shards(folder, 2);
  const std::string renamed = folder.path_of("renamed.gguf");
  std::filesystem::copy(paths[1], renamed);
  EXPECT_THAT(error_of(renamed), HasSubstr("file 2 of 2 of a split model and must be named '…-00002-of-00002.gguf'"));
  std::filesystem::rename(renamed, paths[0]);  // now both files hold shard 2
  EXPECT_THAT(error_of(paths[0]), HasSubstr("must be named 'm-00002-of-00002.gguf'"));
  EXPECT_THAT(error_of(paths[1]), HasSubstr("m-00001-of-00002.gguf: holds file 2 of 2"));
}

struct Contradiction {
  const char* name;
  void (*change)(RawGguf& second);
  const char* words;
};

TEST(SplitFile, contradictions_between_shards_are_refused) {
  const Contradiction cases[] = {
      {"total", [](RawGguf& s) { s.set("split.tensors.count", value(22)); }, "files of different models"},
      {"no total", [](RawGguf& s) { s.remove("split.tensors.count"); }, "'split.tensors.count' is missing"},
      {"count", [](RawGguf& s) { s.set("split.count", value(uint16_t{3})); }, "must be named 'm-00002-of-00003.gguf'"},
      {"no keys", [](RawGguf& s) { s.entries.clear(); }, "do not say that it is split"},
      {"architecture", [](RawGguf& s) { s.set("general.architecture", value("qwen2")); }, "is 'qwen2', but 'llama'"},
      {"fewer", [](RawGguf& s) { s.tensors.pop_back(); }, "there are 20 tensors in all"},
      {"twice", [](RawGguf& s) { s.tensors.back().name = "token_embd.weight"; }, "occurs in files 1 and 2 of the set"},
      {"damaged", [](RawGguf& s) { s.tensors.back().data.pop_back(); }, "pass its end"},
  };
  for (const Contradiction& c : cases) {
    SCOPED_TRACE(c.name);
    const TemporaryFolder folder;
    auto shards = test_support::split(tiny_llama(), 2);
    c.change(shards[1]);
    const std::string first = folder.write(shard_name("m", 0, 2), shards[0].bytes());
    folder.write(shard_name("m", 1, 2), shards[1].bytes());
    EXPECT_THAT(error_of(first), HasSubstr(c.words));
  }
}

TEST(SplitFile, count_of_one_is_a_whole_file_of_any_name) {
  for (const uint16_t count : {0, 1}) {
    const TemporaryFolder folder;
    RawGguf model = tiny_llama();
    model.set("split.count", value(count));
    for (const char* name : {"model.gguf", "m-00001-of-00001.gguf", "m-00000-of-00000.gguf"}) {
      const auto file = File::open(folder.write(name, model.bytes()));
      ASSERT_TRUE(file) << file.error().message;
      expect_tiny_model(*file);
    }
  }
}

}  // namespace
}  // namespace honeycrisp::gguf
