#include "gguf/writer.h"

#include "support/temporary_folder.h"
#include "support/tiny_gguf.h"

#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace honeycrisp::gguf {
namespace {

namespace fs = std::filesystem;
using test_support::TemporaryFolder;

std::vector<std::byte> numbered_bytes(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = std::byte(i * 7);
  return bytes;
}

/// A copy of everything that `file` holds, through the Writer.
std::vector<std::byte> copy_of(const Header& file) {
  Writer writer{uint32_t(file.alignment)};
  for (const Metadata::Entry& entry : file.metadata.entries()) writer.add_entry(entry);
  for (const Tensor& t : file.tensors)
    writer.add_tensor(t.name, t.format, std::span(t.dims).first(t.n_dims), {t.data, size_t(t.bytes)});
  return writer.to_bytes();
}

void expect_same(const Header& a, const Header& b) {
  const auto keys_a = a.metadata.entries(), keys_b = b.metadata.entries();
  ASSERT_EQ(keys_a.size(), keys_b.size());
  for (const Metadata::Entry& entry : keys_a) {
    const Value* other = b.metadata.find(entry.key);
    ASSERT_NE(other, nullptr) << entry.key;
    EXPECT_EQ(entry.value.type(), other->type()) << entry.key;
    EXPECT_EQ(entry.value.element_type(), other->element_type()) << entry.key;
    EXPECT_EQ(entry.value.size(), other->size()) << entry.key;
    EXPECT_TRUE(std::ranges::equal(entry.value.payload(), other->payload())) << entry.key;
    EXPECT_TRUE(std::ranges::equal(entry.value.strings(), other->strings())) << entry.key;
  }
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const Tensor &x = a.tensors[i], &y = b.tensors[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.format, y.format);
    EXPECT_EQ(x.n_dims, y.n_dims);
    EXPECT_EQ(x.dims, y.dims);
    EXPECT_TRUE(std::ranges::equal(std::span(x.data, x.bytes), std::span(y.data, y.bytes))) << x.name;
  }
}

TEST(Writer, all_setters_round_trip) {
  Writer writer(64);
  const float floats[] = {-1.5f, 0.0f};
  const uint32_t uints[] = {1, 4294967295u};
  const int32_t ints[] = {-1, 2};
  const bool bools[] = {true, false, true};
  const std::string strings[] = {"", "two", std::string("\0\xff", 2)};
  writer.add_uint16("u16", 65535);
  writer.add_uint32("u32", 4294967295u);
  writer.add_int32("i32", -7);
  writer.add_uint64("u64", ~uint64_t{0});
  writer.add_float32("f32", 0.1f);
  writer.add_bool("bool", true);
  writer.add_string("text", "grüße");
  writer.add_uint32s("u32s", uints);
  writer.add_int32s("i32s", ints);
  writer.add_float32s("f32s", floats);
  writer.add_bools("bools", bools);
  writer.add_strings("strings", strings);
  const auto data = numbered_bytes(36 * 3);
  const uint64_t dims[] = {64, 3, 1};
  writer.add_tensor("blocks", quant::Format::kNVFP4, dims, data);
  writer.add_tensor("scalar", quant::Format::kF32, {}, std::span(data).first(4));

  const auto bytes = writer.to_bytes();
  EXPECT_EQ(bytes.size() % 64, 0u);
  const auto file = parse(bytes, "test");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version, 3u);
  EXPECT_EQ(file->alignment, 64u);
  const Metadata& m = file->metadata;
  EXPECT_EQ(m.entries().size(), 13u);
  EXPECT_EQ(m.find("u16")->as_uint(), 65535u);
  EXPECT_EQ(m.find("u32")->as_uint(), 4294967295u);
  EXPECT_EQ(m.find("i32")->as_int(), -7);
  EXPECT_EQ(m.find("u64")->as_uint(), ~uint64_t{0});
  EXPECT_EQ(m.find("f32")->as_float(), double{0.1f});
  EXPECT_EQ(m.find("bool")->as_bool(), true);
  EXPECT_EQ(m.find("text")->as_string(), "grüße");
  EXPECT_EQ(m.find("u32s")->uint_at(1), 4294967295u);
  EXPECT_EQ(m.find("i32s")->int_at(0), -1);
  EXPECT_EQ(m.find("f32s")->float_at(0), -1.5);
  EXPECT_EQ(m.find("bools")->int_at(2), 1);
  EXPECT_THAT(m.find("strings")->strings(), testing::ElementsAreArray(strings));
  ASSERT_EQ(file->tensors.size(), 2u);
  const Tensor &blocks = file->tensors[0], &scalar = file->tensors[1];
  EXPECT_EQ(blocks.n_dims, 3u);
  EXPECT_EQ(blocks.rows(), 3u);
  EXPECT_TRUE(std::ranges::equal(std::span(blocks.data, blocks.bytes), data));
  EXPECT_EQ(scalar.n_dims, 0u);
  EXPECT_EQ(scalar.elements(), 1u);
  EXPECT_EQ(scalar.file_offset % 64, 0u);
}

TEST(Writer, copy_of_each_family_file_has_the_same_metadata_and_tensors) {
  int n = 0;
  for (const auto& entry : fs::directory_iterator(HONEYCRISP_TEST_DATA "/families")) {
    if (entry.path().extension() != ".gguf") continue;
    ++n;
    SCOPED_TRACE(entry.path());
    const auto file = MappedFile::open(entry.path().string());
    ASSERT_TRUE(file);
    const auto original = parse(file->bytes(), "original");
    ASSERT_TRUE(original) << original.error().message;
    const auto bytes = copy_of(*original);
    const auto copy = parse(bytes, "copy");
    ASSERT_TRUE(copy) << copy.error().message;
    expect_same(*original, *copy);
  }
  EXPECT_GE(n, 10);
}

TEST(Writer, copy_of_values_of_every_type_is_the_same) {
  test_support::RawGguf all;
  const auto add = [&all](const std::string& name, auto v) {
    all.set(name, test_support::value(v));
    all.set(name + "s", test_support::value(std::vector{v, v}));
    all.set("no " + name + "s", test_support::value(std::vector<decltype(v)>{}));
  };
  add("u8", uint8_t{1}), add("i8", int8_t{-1}), add("u16", uint16_t{2}), add("i16", int16_t{-2});
  add("u32", uint32_t{3}), add("i32", int32_t{-3}), add("u64", uint64_t{4}), add("i64", int64_t{-4});
  add("f32", 0.5f), add("f64", 0.25), add("bool", true);
  all.set("text", test_support::value(std::string_view("\0\xff", 2)));
  all.set("texts", test_support::value(std::vector<std::string>{"", "a"}));
  const std::string bytes = all.bytes();
  const auto original = parse(std::as_bytes(std::span(bytes)), "original");
  ASSERT_TRUE(original) << original.error().message;
  const auto copied = copy_of(*original);
  const auto copy = parse(copied, "copy");
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ(copy->metadata.entries().size(), 11u * 3 + 2);
  expect_same(*original, *copy);
}

TEST(Writer, entry_of_another_layout_is_not_taken_over) {
  Writer writer(128);
  writer.add_uint16("split.count", 3);
  writer.add_string("general.name", "x");
  const auto bytes = writer.to_bytes();
  const auto file = parse(bytes, "test");
  ASSERT_TRUE(file) << file.error().message;
  Writer other;
  for (const Metadata::Entry& entry : file->metadata.entries()) other.add_entry(entry);
  const auto copied_bytes = other.to_bytes();
  const auto copy = parse(copied_bytes, "copy");
  ASSERT_TRUE(copy) << copy.error().message;
  ASSERT_EQ(copy->metadata.entries().size(), 1u);
  EXPECT_EQ(copy->metadata.entries()[0].key, "general.name");
  EXPECT_EQ(copy->alignment, kDefaultAlignment);
}

TEST(Writer, write_makes_the_bytes_of_to_bytes_and_no_other_file) {
  const TemporaryFolder folder;
  const std::string path = folder.path_of("ünï code 🙂.gguf");
  const auto data = numbered_bytes(4 * 32);
  const uint64_t dims[] = {32};
  Writer writer;
  writer.add_tensor("t", quant::Format::kF32, dims, data);
  const auto written = writer.write(path);
  ASSERT_TRUE(written) << written.error().message;
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(std::ranges::equal(file->bytes(), writer.to_bytes()));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Writer, failing_source_leaves_the_old_file_alone) {
  const TemporaryFolder folder;
  const std::string path = folder.write("model.gguf", "old");
  const uint64_t dims[] = {8};
  Writer writer;
  writer.add_tensor("t", quant::Format::kF32, dims,
                    []() -> Result<std::span<const std::byte>> { return invalid("no bytes today"); });
  const auto written = writer.write(path);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "no bytes today");
  EXPECT_EQ(fs::file_size(path), 3u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Writer, unusable_paths_are_refused) {
  const TemporaryFolder folder;
  const std::string fifo = folder.path_of("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Writer writer;
  const auto to_folder = writer.write(folder.path()), to_fifo = writer.write(fifo),
             nowhere = writer.write(folder.path_of("no/x"));
  ASSERT_FALSE(to_folder);
  ASSERT_FALSE(to_fifo);
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(to_folder.error().message, testing::HasSubstr("not a regular file"));
  EXPECT_THAT(to_fifo.error().message, testing::HasSubstr("not a regular file"));
  EXPECT_THAT(nowhere.error().message, testing::HasSubstr("cannot create: No such file"));
  EXPECT_TRUE(fs::is_fifo(fifo));
}

}  // namespace
}  // namespace honeycrisp::gguf
