// Two halves of the input: the first decides on a vocabulary, or is one (a GGUF file as it stands); the second is text.
// Whatever loads must encode any text, alone and in segments, and decode any ids, without leaving its bounds; and what
// byte-level vocabularies encode, they decode to the same bytes.
#include "gguf/file.h"
#include "gguf/writer.h"
#include "text/tokenizer.h"
#include "text/tokenizer/byte_level.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {
using namespace honeycrisp;
using text::TokenId;
using text::Tokenizer;

void require(bool condition) {
  if (!condition) std::abort();
}

/// A vocabulary of all bytes, ChatML's markers, and merges that pair up the bytes of `recipe`.
Result<Tokenizer> byte_level_vocabulary(std::string_view recipe, std::string_view pre) {
  std::vector<std::string> tokens = {"<|im_start|>", "<|im_end|>", "<think>"}, merges;
  std::vector<int32_t> types = {3, 3, 4};
  for (int byte = 0; byte < 256; ++byte) {
    const char raw = char(byte);
    text::append_byte_level(tokens.emplace_back(), {&raw, 1});
    types.push_back(1);
  }
  for (size_t i = 0; i + 1 < recipe.size() && i < 64; i += 2) {
    // either operand may be any token made so far
    const size_t n = tokens.size() - 3;
    const std::string left = tokens[3 + uint8_t(recipe[i]) * 7 % n], right = tokens[3 + uint8_t(recipe[i + 1]) * 5 % n];
    merges.push_back(left + " " + right);
    if (std::find(tokens.begin(), tokens.end(), left + right) != tokens.end()) continue;
    tokens.push_back(left + right);
    types.push_back(1);
  }
  gguf::Writer writer;
  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", pre);
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  writer.add_int32s("tokenizer.ggml.token_type", types);
  writer.add_strings("tokenizer.ggml.merges", merges);
  const std::vector<std::byte> bytes = writer.to_bytes();
  HC_ASSIGN(const gguf::Header header, gguf::parse(bytes, "fuzz"));
  return Tokenizer::load(header.metadata);
}

void use(const Tokenizer& tokenizer, std::string_view input, bool is_byte_level) {
  const auto plain = tokenizer.encode(input, false), special = tokenizer.encode(input, true);
  const std::string_view head = input.substr(0, input.size() / 2), tail = input.substr(input.size() / 2);
  const text::Segment segments[] = {{std::string(head), false}, {std::string(tail), true}};
  const auto mixed = tokenizer.encode(segments);
  if (!plain || !special || !mixed) return;  // no vocabulary
  for (const auto& ids : {*plain, *special, *mixed}) {
    for (const TokenId id : ids) require(id >= 0 && size_t(id) < tokenizer.vocabulary_size());
    const std::string decoded = tokenizer.decode(ids, true);
    if (is_byte_level) require(decoded == input);
    text::Utf8Stream stream;
    for (const TokenId id : ids) stream.push(tokenizer.token_bytes(id, true));
    stream.finish();
  }
  for (const TokenId id : {TokenId{-1}, TokenId{0}, TokenId(tokenizer.vocabulary_size())}) {
    tokenizer.token_bytes(id, true);
    tokenizer.token_text(id);
    tokenizer.is_end_of_generation(id);
  }
  tokenizer.find(input);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with("GGUF")) {
    const auto header = gguf::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    if (!header) return 0;
    const auto tokenizer = Tokenizer::load(header->metadata);
    if (tokenizer) use(*tokenizer, bytes.substr(size - std::min<size_t>(size, 200)), false);
    return 0;
  }
  constexpr std::string_view kPres[] = {"gpt-2",  "smollm",       "qwen2",    "llama-bpe",
                                        "gpt-4o", "deepseek-llm", "superbpe", "kimi-k2"};
  if (bytes.empty()) return 0;
  const std::string_view rest = bytes.substr(1);
  const auto tokenizer = byte_level_vocabulary(rest.substr(0, rest.size() / 2), kPres[data[0] % std::size(kPres)]);
  require(tokenizer.has_value());
  use(*tokenizer, rest.substr(rest.size() / 2), true);
  return 0;
}
