#include "support/tiny_gguf.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace honeycrisp::test_support {
namespace {

using Tokenizer = TinyOptions::Tokenizer;

/// Token types of GGUF vocabularies.
enum : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;

  void add(std::string token, int32_t type, float score = 0) {
    tokens.push_back(std::move(token));
    types.push_back(type);
    scores.push_back(score);
  }
};

/// Pairs that are merged, in order of rank; each side is a byte or an earlier result. "_" stands for a space.
constexpr std::pair<const char*, const char*> kMerges[] = {
    {"_", "t"},     {"h", "e"}, {"i", "n"},   {"_t", "he"},  {"e", "r"}, {"_", "a"}, {"o", "n"},   {"r", "e"},
    {"a", "t"},     {"_", "s"}, {"o", "u"},   {"_", "w"},    {"l", "l"}, {"o", "r"}, {"_w", "or"}, {"l", "d"},
    {"_wor", "ld"}, {"H", "e"}, {"He", "ll"}, {"Hell", "o"}, {"a", "n"}, {"n", "d"}, {"_a", "nd"}, {"i", "s"},
    {"_", "is"},    {"_", "o"}, {"_o", "f"},  {"in", "g"},   {"c", "a"}, {"p", "i"}, {"_", "ca"},  {"a", "l"},
};

std::string encode_utf8(uint32_t c) {
  if (c < 0x80) return {char(c)};
  if (c < 0x800) return {char(0xC0 | c >> 6), char(0x80 | (c & 0x3F))};
  return {char(0xE0 | c >> 12), char(0x80 | (c >> 6 & 0x3F)), char(0x80 | (c & 0x3F))};
}

/// GPT-2's visible stand-in for each byte: itself where printable, else the next free code point from 256 up.
std::vector<std::string> byte_characters() {
  std::vector<std::string> characters;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    characters.push_back(encode_utf8(printable ? b : next++));
  }
  return characters;
}

std::string with_space(std::string_view text, std::string_view space) {
  std::string out;
  for (const char c : text) out += c == '_' ? std::string(space) : std::string(1, c);
  return out;
}

void add_gpt2_vocabulary(RawGguf& file) {
  const std::vector<std::string> characters = byte_characters();
  Vocabulary vocabulary;
  std::vector<std::string> merges;
  for (const std::string& character : characters) vocabulary.add(character, kNormal);
  for (const auto& [left, right] : kMerges) {
    const std::string l = with_space(left, characters[' ']), r = with_space(right, characters[' ']);
    merges.push_back(l + " " + r);
    vocabulary.add(l + r, kNormal);
  }
  const uint32_t first_special = uint32_t(vocabulary.tokens.size());
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) vocabulary.add(token, kControl);
  file.set("tokenizer.ggml.model", value("gpt2"));
  file.set("tokenizer.ggml.pre", value("gpt-2"));
  file.set("tokenizer.ggml.tokens", value(vocabulary.tokens));
  file.set("tokenizer.ggml.token_type", value(vocabulary.types));
  file.set("tokenizer.ggml.merges", value(merges));
  file.set("tokenizer.ggml.bos_token_id", value(first_special));
  file.set("tokenizer.ggml.eos_token_id", value(first_special + 2));
  file.set("tokenizer.ggml.add_bos_token", value(false));
}

void add_llama_vocabulary(RawGguf& file) {
  constexpr std::string_view kSpace = "\u2581";
  Vocabulary vocabulary;
  vocabulary.add("<unk>", kUnknown);
  vocabulary.add("<s>", kControl);
  vocabulary.add("</s>", kControl);
  for (unsigned b = 0; b < 256; ++b) {
    char token[8];
    std::snprintf(token, sizeof token, "<0x%02X>", b);
    vocabulary.add(token, kByte);
  }
  float score = -1;
  for (const auto& [left, right] : kMerges)
    vocabulary.add(with_space(std::string(left) + right, kSpace), kNormal, score--);
  vocabulary.add(std::string(kSpace), kNormal, score--);
  for (char c = 'a'; c <= 'z'; ++c) vocabulary.add(std::string(1, c), kNormal, score--);
  file.set("tokenizer.ggml.model", value("llama"));
  file.set("tokenizer.ggml.tokens", value(vocabulary.tokens));
  file.set("tokenizer.ggml.scores", value(vocabulary.scores));
  file.set("tokenizer.ggml.token_type", value(vocabulary.types));
  file.set("tokenizer.ggml.bos_token_id", value(uint32_t{1}));
  file.set("tokenizer.ggml.eos_token_id", value(uint32_t{2}));
  file.set("tokenizer.ggml.unknown_token_id", value(uint32_t{0}));
  file.set("tokenizer.ggml.add_bos_token", value(true));
}

/// Numbers of splitmix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators").
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  /// Uniform in [-1, 1).
  float next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return float(z >> 40) * 0x1p-23f - 1.0f;
  }

 private:
  uint64_t state_;
};

RawTensor weights(std::string name, std::vector<uint64_t> dims, Random& random) {
  uint64_t elements = 1;
  for (const uint64_t dim : dims) elements *= dim;
  const float scale = 1.0f / std::sqrt(float(dims[0]));
  std::string data;
  for (uint64_t i = 0; i < elements; ++i) data += packed(random.next() * scale);
  return {std::move(name), 0, std::move(dims), std::move(data), {}, {}};
}

RawTensor ones(std::string name, uint64_t elements) {
  std::string data;
  for (uint64_t i = 0; i < elements; ++i) data += packed(1.0f);
  return {std::move(name), 0, {elements}, std::move(data), {}, {}};
}

uint64_t vocabulary_size(const RawGguf& file) {
  for (const RawEntry& entry : file.entries) {
    if (entry.key != "tokenizer.ggml.tokens") continue;
    uint64_t count = 0;
    std::memcpy(&count, entry.value.payload.data() + 4, sizeof count);
    return count;
  }
  std::abort();
}

std::string round_up_to(std::string bytes, uint64_t alignment) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  return bytes;
}

}  // namespace

void RawGguf::set(std::string_view key, RawValue v) {
  for (RawEntry& entry : entries)
    if (entry.key == key) return void(entry.value = std::move(v));
  entries.push_back({std::string(key), std::move(v)});
}

void RawGguf::remove(std::string_view key) {
  std::erase_if(entries, [&](const RawEntry& entry) { return entry.key == key; });
}

RawTensor& RawGguf::tensor(std::string_view name) {
  const auto it = std::ranges::find(tensors, name, &RawTensor::name);
  if (it == tensors.end()) std::abort();
  return *it;
}

void RawGguf::remove_tensor(std::string_view name) {
  std::erase_if(tensors, [&](const RawTensor& tensor) { return tensor.name == name; });
}

void RawGguf::set_alignment(uint32_t bytes) {
  alignment = bytes;
  set("general.alignment", value(bytes));
}

std::string RawGguf::bytes() const {
  std::string out =
      magic + packed(version) + packed(n_tensors.value_or(tensors.size())) + packed(n_entries.value_or(entries.size()));
  for (const RawEntry& entry : entries)
    out += packed_string(entry.key) + packed(entry.value.type) + entry.value.payload;
  std::string data;
  for (const RawTensor& tensor : tensors) {
    data = round_up_to(std::move(data), alignment);
    out += packed_string(tensor.name) + packed(tensor.n_dims.value_or(uint32_t(tensor.dims.size())));
    for (const uint64_t dim : tensor.dims) out += packed(dim);
    out += packed(tensor.type) + packed(tensor.offset.value_or(data.size()));
    data += tensor.data;
  }
  if (tensors.empty()) return out;
  return round_up_to(std::move(out), alignment) + data;
}

RawGguf tiny_vocabulary(const TinyOptions& options) {
  RawGguf file;
  file.set("general.architecture", value("llama"));
  file.set("general.name", value("tiny"));
  file.set("general.file_type", value(uint32_t{0}));
  file.set("llama.block_count", value(options.layers));
  file.set("llama.context_length", value(options.context));
  file.set("llama.embedding_length", value(options.width));
  file.set("llama.feed_forward_length", value(options.feed_forward));
  file.set("llama.attention.head_count", value(options.heads));
  file.set("llama.attention.head_count_kv", value(options.kv_heads));
  file.set("llama.attention.layer_norm_rms_epsilon", value(1e-5f));
  file.set("llama.rope.dimension_count", value(options.width / options.heads));
  file.set("llama.rope.freq_base", value(10000.0f));
  if (options.tokenizer == Tokenizer::kGpt2)
    add_gpt2_vocabulary(file);
  else
    add_llama_vocabulary(file);
  file.set("llama.vocab_size", value(uint32_t(vocabulary_size(file))));
  file.set("tokenizer.chat_template",
           value("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"));
  return file;
}

RawGguf tiny_llama(const TinyOptions& options) {
  RawGguf file = tiny_vocabulary(options);
  Random random(options.seed);
  const uint64_t width = options.width, kv_width = width / options.heads * options.kv_heads;
  const uint64_t vocabulary = vocabulary_size(file), feed_forward = options.feed_forward;
  auto& tensors = file.tensors;
  tensors.push_back(weights("token_embd.weight", {width, vocabulary}, random));
  for (uint32_t layer = 0; layer < options.layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    tensors.push_back(ones(block + "attn_norm.weight", width));
    tensors.push_back(weights(block + "attn_q.weight", {width, width}, random));
    tensors.push_back(weights(block + "attn_k.weight", {width, kv_width}, random));
    tensors.push_back(weights(block + "attn_v.weight", {width, kv_width}, random));
    tensors.push_back(weights(block + "attn_output.weight", {width, width}, random));
    tensors.push_back(ones(block + "ffn_norm.weight", width));
    tensors.push_back(weights(block + "ffn_gate.weight", {width, feed_forward}, random));
    tensors.push_back(weights(block + "ffn_up.weight", {width, feed_forward}, random));
    tensors.push_back(weights(block + "ffn_down.weight", {feed_forward, width}, random));
  }
  tensors.push_back(ones("output_norm.weight", width));
  if (!options.tied) tensors.push_back(weights("output.weight", {width, vocabulary}, random));
  return file;
}

RawGguf one_of_each() {
  RawGguf file;
  file.set("u8", value(uint8_t{1}));
  file.set("i8", value(int8_t{-1}));
  file.set("u16", value(uint16_t{2}));
  file.set("i16", value(int16_t{-2}));
  file.set("u32", value(uint32_t{3}));
  file.set("i32", value(int32_t{-3}));
  file.set("f32", value(0.5f));
  file.set("bool", value(true));
  file.set("text", value("text"));
  file.set("u64", value(uint64_t{4}));
  file.set("i64", value(int64_t{-4}));
  file.set("f64", value(0.25));
  file.set("u16s", value(std::vector<uint16_t>{1, 2, 3}));
  file.set("f32s", value(std::vector<float>{1, 2}));
  file.set("bools", value(std::vector<bool>{true, false}));
  file.set("texts", value(std::vector<std::string>{"a", "", "bc"}));
  file.set("none", value(std::vector<std::string>{}));
  file.set_alignment(8);
  file.tensors.push_back({"a", 0, {8, 2}, std::string(64, 'a'), {}, {}});
  file.tensors.push_back({"b", 8, {32}, std::string(34, 'b'), {}, {}});  // Q8_0
  return file;
}

std::vector<RawGguf> split(const RawGguf& model, uint16_t count) {
  std::vector<RawGguf> shards(count);
  const size_t total = model.tensors.size();
  for (size_t i = 0; i < count; ++i) {
    RawGguf& shard = shards[i];
    shard.version = model.version;
    if (i == 0) shard.entries = model.entries;
    shard.set_alignment(uint32_t(model.alignment));
    shard.tensors.assign(model.tensors.begin() + ptrdiff_t(total * i / count),
                         model.tensors.begin() + ptrdiff_t(total * (i + 1) / count));
    shard.set("split.no", value(uint16_t(i)));
    shard.set("split.count", value(count));
    shard.set("split.tensors.count", value(int32_t(total)));
  }
  return shards;
}

std::string shard_name(std::string_view prefix, size_t index, size_t count) {
  char ending[32];
  std::snprintf(ending, sizeof ending, "-%05zu-of-%05zu.gguf", index + 1, count);
  return std::string(prefix) + ending;
}

}  // namespace honeycrisp::test_support
