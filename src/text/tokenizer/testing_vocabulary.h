// Small vocabularies for tests, as the metadata of a GGUF file would give them. Included by tests only.
#pragma once

#include "gguf/file.h"
#include "gguf/writer.h"
#include "text/tokenizer.h"
#include "text/tokenizer/byte_level.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace honeycrisp::text {

/// A token list under construction; `writer` takes further keys.
struct TestingVocabulary {
  std::string model = "gpt2";
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
  gguf::Writer writer;

  TokenId add(std::string text, TokenType type = TokenType::kNormal, float score = 0) {
    tokens.push_back(std::move(text));
    types.push_back(int32_t(type));
    scores.push_back(score);
    return TokenId(tokens.size() - 1);
  }
  /// Adds the merge "left right" and the token it makes, if that is new.
  void merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end()) add(left + right);
  }

  Result<Tokenizer> load() {
    writer.add_string("tokenizer.ggml.model", model);
    writer.add_strings("tokenizer.ggml.tokens", tokens);
    writer.add_int32s("tokenizer.ggml.token_type", types);
    if (model == "llama") writer.add_float32s("tokenizer.ggml.scores", scores);
    if (model != "llama") writer.add_strings("tokenizer.ggml.merges", merges);
    return load_from(writer);
  }
  Tokenizer must_load() {
    Result<Tokenizer> tokenizer = load();
    if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
    return *tokenizer;
  }
  static Result<Tokenizer> load_from(const gguf::Writer& writer) {
    const std::vector<std::byte> bytes = writer.to_bytes();
    HC_ASSIGN(const gguf::Header header, gguf::parse(bytes, "test"));
    return Tokenizer::load(header.metadata);  // which keeps nothing of `bytes`
  }
};

/// All bytes, some merges of English, ChatML's control tokens, and a user-defined <think>.
inline TestingVocabulary chatml_vocabulary(const char* pre = "qwen2") {
  TestingVocabulary v;
  for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) v.add(control, TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    const char raw = char(byte);
    append_byte_level(spelling, {&raw, 1});
    v.add(spelling);
  }
  const std::string g = "\u0120";  // a space
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"l", "l"},      {"h", "e"}, {"he", "ll"},      {"hell", "o"},        {g, "w"},        {"o", "r"},
      {g + "w", "or"}, {"l", "d"}, {g + "wor", "ld"}, {"\u010A", "\u010A"}, {".", "\u010A"}, {"a", "a"},
      {"aa", "aa"},    {g, g},     {"A", "B"}};
  for (const auto& [left, right] : merges) v.merge(left, right);
  v.add("<think>", TokenType::kUserDefined);
  v.writer.add_string("tokenizer.ggml.pre", pre);
  v.writer.add_uint32("tokenizer.ggml.eos_token_id", 2);
  return v;
}

/// <unk>, <s>, </s>, byte tokens, single letters, and some words with scores.
inline TestingVocabulary llama_vocabulary() {
  TestingVocabulary v;
  v.model = "llama";
  v.add("<unk>", TokenType::kUnknown);
  v.add("<s>", TokenType::kControl);
  v.add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) v.add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  float score = -1;
  for (const char* word : {"he", "ll", "\u2581w", "or", "ld", "\u2581he", "llo", "\u2581wor", "\u2581hello",
                           "\u2581world", "\u2581\u2581", "s>", "</", "</s"}) {
    v.add(word, TokenType::kNormal, score--);
  }
  v.add("\u2581", TokenType::kNormal, -100);
  for (char c = 'a'; c <= 'z'; ++c) v.add(std::string(1, c), TokenType::kNormal, -101);
  for (const char* c : {"<", ">", "/"}) v.add(c, TokenType::kNormal, -102);
  return v;
}

}  // namespace honeycrisp::text
