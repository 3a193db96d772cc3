#include "support/hostile_gguf.h"

#include "support/tiny_gguf.h"

#include <array>
#include <limits>
#include <utility>

namespace honeycrisp::test_support {
namespace {

constexpr uint64_t kHuge = uint64_t{1} << 60, kMax64 = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kTypeUint8 = 0, kTypeUint32 = 4, kTypeBool = 7;
constexpr uint32_t kF32 = 0, kRemovedQ4_2 = 4, kQ4_K = 12;

/// The tiny model after `change`.
template <class F>
std::string changed(F change) {
  RawGguf file = tiny_llama();
  change(file);
  return file.bytes();
}

std::string with_value(RawValue v) {
  return changed([&](RawGguf& f) { f.set("test.key", std::move(v)); });
}

std::string with_key(std::string key) {
  return changed([&](RawGguf& f) { f.entries.push_back({std::move(key), value(true)}); });
}

std::string with_alignment_value(RawValue v) {
  return changed([&](RawGguf& f) { f.set("general.alignment", std::move(v)); });
}

std::string with_tensor_name(std::string name) {
  return changed([&](RawGguf& f) { f.tensors.push_back({std::move(name), kF32, {8}, std::string(32, '\0'), {}, {}}); });
}

std::string with_dims(std::vector<uint64_t> dims) {
  return changed([&](RawGguf& f) { f.tensor("output.weight").dims = std::move(dims); });
}

std::string with_offset(uint64_t offset) {
  return changed([&](RawGguf& f) { f.tensor("output.weight").offset = offset; });
}

std::string with_shard_keys(uint16_t number, uint16_t count) {
  return changed([&](RawGguf& f) {
    f.set("split.no", value(number));
    f.set("split.count", value(count));
    f.set("split.tensors.count", value(int32_t(f.tensors.size())));
  });
}

/// Magic, version and both counts as a machine of the other byte order writes them.
std::string big_endian() {
  std::string bytes = tiny_llama().bytes();
  const auto reverse = [&bytes](size_t at, size_t size) {
    for (size_t i = 0; i < size / 2; ++i) std::swap(bytes[at + i], bytes[at + size - 1 - i]);
  };
  reverse(4, 4);
  reverse(8, 8);
  reverse(16, 8);
  return bytes;
}

std::string cut(size_t keep_of_1000, size_t drop) {
  std::string bytes = tiny_llama().bytes();
  bytes.resize(bytes.size() * keep_of_1000 / 1000 - drop);
  return bytes;
}

std::string name_of(size_t bytes) {
  std::string name = "extra.";
  name.resize(bytes, 'n');
  return name;
}

constexpr Verdict kAccepted = Verdict::kAccepted, kRefused = Verdict::kRefused, kReadable = Verdict::kReadable;

constexpr auto kCases = std::to_array<HostileCase>({
    // Unusual and valid.
    {"valid", kAccepted, "", [] { return tiny_llama().bytes(); }},
    {"valid_v2", kAccepted, "", [] { return changed([](RawGguf& f) { f.version = 2; }); }},
    {"valid_align64", kAccepted, "", [] { return changed([](RawGguf& f) { f.set_alignment(64); }); }},
    {"valid_align8", kAccepted, "", [] { return changed([](RawGguf& f) { f.set_alignment(8); }); }},
    {"valid_tied", kAccepted, "", [] { return tiny_llama({.tied = true}).bytes(); }},
    {"valid_spm", kAccepted, "", [] { return tiny_llama({.tokenizer = TinyOptions::Tokenizer::kLlama}).bytes(); }},
    {"valid_one_shard-00001-of-00001", kAccepted, "", [] { return split(tiny_llama(), 1)[0].bytes(); }},
    {"name_70", kAccepted, "", [] { return with_tensor_name(name_of(70)); }},
    {"name_control_bytes", kAccepted, "",
     [] {
       return changed([](RawGguf& f) {
         f.set("general.name", value("\x1b]0;owned\x07\x1b[2J\xff\xfe\r\n"));
         f.set("general.\x1b[31mkey", value("\x9b" "31m"));
         f.tensors.push_back({"extra.\x1b[31m\ntensor", kF32, {8}, std::string(32, '\0'), {}, {}});
       });
     }},

    // Not a GGUF file that we read.
    {"empty", kRefused, "is empty", [] { return std::string(); }},
    {"one_byte", kRefused, "not a GGUF file", [] { return std::string("G"); }},
    {"magic_only", kRefused, "ends inside the version", [] { return std::string("GGUF"); }},
    {"magic_wrong", kRefused, "not a GGUF file", [] { return changed([](RawGguf& f) { f.magic = "ggjt"; }); }},
    {"magic_escape", kRefused, "\\x1b[2J", [] { return changed([](RawGguf& f) { f.magic = "\x1b[2J"; }); }},
    {"header_cut", kRefused, "number of keys", [] { return tiny_llama().bytes().substr(0, 20); }},
    {"v0", kRefused, "version 0", [] { return changed([](RawGguf& f) { f.version = 0; }); }},
    {"v1", kRefused, "version 1", [] { return changed([](RawGguf& f) { f.version = 1; }); }},
    {"v4", kRefused, "version 4", [] { return changed([](RawGguf& f) { f.version = 4; }); }},
    {"v9", kRefused, "version 9", [] { return changed([](RawGguf& f) { f.version = 9; }); }},
    {"big_endian", kRefused, "big-endian file", big_endian},

    // Counts and lengths.
    {"nkv_huge", kRefused, "keys are declared", [] { return changed([](RawGguf& f) { f.n_entries = kHuge; }); }},
    {"nkv_max", kRefused, "keys are declared", [] { return changed([](RawGguf& f) { f.n_entries = kMax64; }); }},
    {"nkv_million", kRefused, "keys are declared", [] { return changed([](RawGguf& f) { f.n_entries = 1000000; }); }},
    {"nkv_one_more", kRefused, "the name of tensor 0", [] { return changed([](RawGguf& f) { f.n_entries = f.entries.size() + 1; }); }},
    {"ntensors_huge", kRefused, "tensors are declared", [] { return changed([](RawGguf& f) { f.n_tensors = kHuge; }); }},
    {"ntensors_max", kRefused, "tensors are declared", [] { return changed([](RawGguf& f) { f.n_tensors = kMax64; }); }},
    {"ntensors_one_more", kRefused, "the name of tensor 21", [] { return changed([](RawGguf& f) { f.n_tensors = f.tensors.size() + 1; }); }},
    {"strlen_huge", kRefused, "bytes, but only", [] { return with_value({kTypeString, packed(kHuge) + "text"}); }},
    {"strlen_max", kRefused, "bytes, but only", [] { return with_value({kTypeString, packed(kMax64) + "text"}); }},
    {"strlen_huge_in_array", kRefused, "string 1 has",
     [] { return with_value(array_value(kTypeString, 2, packed_string("text") + packed(kHuge))); }},
    {"arr_huge", kRefused, "an array of", [] { return with_value(array_value(kTypeUint8, kHuge, "elements")); }},
    {"arr_wrap", kRefused, "an array of", [] { return with_value(array_value(kTypeUint32, kHuge << 2, "12345678")); }},
    {"arr_strings_huge", kRefused, "an array of", [] { return with_value(array_value(kTypeString, kMax64 / 8, "")); }},
    {"arr_nested", kRefused, "arrays of arrays",
     [] { return with_value(array_value(kTypeArray, 1, packed(kTypeUint8) + packed(uint64_t{0}))); }},
    {"arr_nested_deep", kRefused, "arrays of arrays",
     [] {
       std::string levels;
       for (int i = 0; i < 10000; ++i) levels += packed(kTypeArray) + packed(uint64_t{1});
       return with_value(array_value(kTypeArray, 1, levels));
     }},
    {"arr_bad_type", kRefused, "unknown element type 13", [] { return with_value(array_value(13, 1, "12345678")); }},
    {"kv_bad_type", kRefused, "unknown value type 13", [] { return with_value({13, "12345678"}); }},
    {"kv_bad_type_max", kRefused, "unknown value type 4294967295", [] { return with_value({~0u, "12345678"}); }},
    {"bool_2", kRefused, "bool is 2", [] { return with_value({kTypeBool, "\x02"}); }},
    {"arr_bool_2", kRefused, "bool 1 is 2", [] { return with_value(array_value(kTypeBool, 2, "\x01\x02")); }},

    // Names.
    {"key_empty", kRefused, "is empty", [] { return with_key(""); }},
    {"key_nul", kRefused, "not valid UTF-8 without NUL", [] { return with_key(std::string("a\0b", 3)); }},
    {"key_bad_utf8", kRefused, "a\\xff", [] { return with_key("a\xff"); }},
    {"key_65536", kRefused, "at most 65535", [] { return with_key(std::string(65536, 'k')); }},
    {"dup_key", kRefused, "key 'general.name' occurs twice", [] { return with_key("general.name"); }},
    {"dup_tensor", kRefused, "tensor 'output.weight' occurs twice", [] { return with_tensor_name("output.weight"); }},
    {"tensor_name_empty", kRefused, "is empty", [] { return with_tensor_name(""); }},
    {"tensor_name_bad_utf8", kRefused, "\\xc3(", [] { return with_tensor_name("\xc3("); }},
    {"tensor_name_65536", kRefused, "at most 65535", [] { return with_tensor_name(name_of(65536)); }},

    // Alignment.
    {"align_0", kRefused, "general.alignment is 0", [] { return with_alignment_value(value(0u)); }},
    {"align_1", kRefused, "general.alignment is 1", [] { return with_alignment_value(value(1u)); }},
    {"align_3", kRefused, "general.alignment is 3", [] { return with_alignment_value(value(3u)); }},
    {"align_2g", kRefused, "general.alignment is 2147483648", [] { return with_alignment_value(value(1u << 31)); }},
    {"align_i32", kRefused, "must be uint32, but is int32", [] { return with_alignment_value(value(32)); }},
    {"align_u64", kRefused, "must be uint32, but is uint64", [] { return with_alignment_value(value(uint64_t{32})); }},
    {"align_str", kRefused, "must be uint32, but is string", [] { return with_alignment_value(value("32")); }},

    // Shapes and types.
    {"dim_zero", kRefused, "tensor 'output.weight': dimension 1 is 0", [] { return with_dims({64, 0}); }},
    {"dim_5", kRefused, "5 dimensions", [] { return with_dims({64, 1, 1, 1, 1}); }},
    {"ndims_max", kRefused, "4294967295 dimensions",
     [] { return changed([](RawGguf& f) { f.tensor("output.weight").n_dims = ~0u; }); }},
    {"dim_negative", kRefused, "dimension 1 is 18446744073709551615", [] { return with_dims({64, kMax64}); }},
    {"dim_product_wrap", kRefused, "overflow", [] { return with_dims({1u << 31, 1u << 31, 4, 1}); }},
    // 64 * (2^56 + 1) elements fit in 64 bits; their bytes wrap to 256, exactly what the file has for this tensor.
    {"dim_bytes_wrap", kRefused, "overflow",
     [] {
       constexpr uint64_t kA = 257 * 5153, kB = 54410972897;
       static_assert(kA * kB == (uint64_t{1} << 56) + 1);
       return changed([](RawGguf& f) {
         f.tensor("output.weight").dims = {64, kA, kB};
         f.tensor("output.weight").data.resize(64 * sizeof(float));
       });
     }},
    {"q4k_row_not_256", kRefused, "a row of 64 elements is not a multiple of the 256 of a Q4_K block",
     [] { return changed([](RawGguf& f) { f.tensor("output.weight").type = kQ4_K; }); }},
    {"tensor_type_removed", kRefused, "tensor 'output.weight': unknown element type 4",
     [] { return changed([](RawGguf& f) { f.tensor("output.weight").type = kRemovedQ4_2; }); }},
    {"tensor_type_max", kRefused, "tensor 'output.weight': unknown element type 4294967295",
     [] { return changed([](RawGguf& f) { f.tensor("output.weight").type = ~0u; }); }},

    // Extents.
    {"offset_past_end", kRefused, "tensor 'output.weight'", [] { return with_offset(uint64_t{1} << 40); }},
    {"offset_wrap", kRefused, "tensor 'output.weight'", [] { return with_offset(kMax64 - 31); }},
    {"offset_unaligned", kRefused, "offset 4 is not a multiple of the alignment 32", [] { return with_offset(4); }},
    {"offset_overlap", kRefused, "overlap", [] { return with_offset(32); }},
    {"cut_1_byte", kRefused, "tensor 'output.weight'", [] { return cut(1000, 1); }},
    {"cut_half", kRefused, "pass its end", [] { return cut(500, 0); }},
    {"no_data", kRefused, "tensor 'token_embd.weight'",
     [] {
       return changed([](RawGguf& f) {
         for (RawTensor& tensor : f.tensors) tensor.offset = 0, tensor.data.clear();
       });
     }},

    // Split files. The file is there alone.
    {"split_alone-00002-of-00003", kRefused, "split_alone-00001-of-00003.gguf", [] { return with_shard_keys(1, 3); }},
    {"split_count_65535", kRefused, "must be named", [] { return with_shard_keys(0, 65535); }},
    {"split_count_65535-00001-of-65535", kRefused, "split_count_65535-00002-of-65535.gguf: cannot open",
     [] { return with_shard_keys(0, 65535); }},
    {"split_no_past_count-00001-of-00002", kRefused, "split.no is 2, but split.count is 2",
     [] { return with_shard_keys(2, 2); }},
    {"split_misnamed-00002-of-00003", kRefused, "must be named 'split_misnamed-00001-of-00003.gguf'",
     [] { return with_shard_keys(0, 3); }},
    {"split_name_only-00001-of-00002", kRefused, "do not say that it is split", [] { return tiny_llama().bytes(); }},
    {"split_count_str", kRefused, "key 'split.count' must be a non-negative integer",
     [] { return changed([](RawGguf& f) { f.set("split.count", value("2")); }); }},

    // Well-formed files whose contents contradict each other.
    {"eos_u32max", kReadable, "",
     [] { return changed([](RawGguf& f) { f.set("tokenizer.ggml.eos_token_id", value(~0u)); }); }},
    {"vocab_1_no_ids", kReadable, "",
     [] {
       return changed([](RawGguf& f) {
         f.set("tokenizer.ggml.model", value("llama"));
         f.set("tokenizer.ggml.tokens", value(std::vector<std::string>{"a"}));
         f.set("tokenizer.ggml.scores", value(std::vector<float>{0.0f}));
         f.set("tokenizer.ggml.token_type", value(std::vector<int32_t>{1}));
         for (const char* key : {"bos", "eos"}) f.remove(std::string("tokenizer.ggml.") + key + "_token_id");
         for (const char* key : {"merges", "pre"}) f.remove(std::string("tokenizer.ggml.") + key);
       });
     }},
    {"vocab_gt_embd", kReadable, "",
     [] {
       return changed([](RawGguf& f) {
         for (const char* name : {"token_embd.weight", "output.weight"}) {
           RawTensor& tensor = f.tensor(name);
           tensor.dims[1] = 100;
           tensor.data.resize(100 * 64 * 4);
         }
       });
     }},
});

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAccepted: return "accepted";
    case Verdict::kRefused: return "refused";
    case Verdict::kReadable: return "readable";
  }
  return "";
}

std::span<const HostileCase> hostile_cases() { return kCases; }

}  // namespace honeycrisp::test_support
