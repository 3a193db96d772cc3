// Reading and checking the token list.
#include "text/tokenizer/vocabulary.h"

#include "base/hash_seed.h"
#include "base/log.h"
#include "base/text_escape.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace honeycrisp::text {
namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";

/// Eight bytes at a time, multiplied and folded.
uint32_t hash_text(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  uint64_t hash = (hash_seed() ^ text.size()) * kMultiplier;
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  };
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    mix(word);
  }
  if (at < text.size()) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, text.size() - at);
    mix(word);
  }
  return uint32_t(hash ^ (hash >> 17));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// The byte of `<0xNN>`, or -1.
int parse_byte_token(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/// The array at `key` if it is there: an error unless it has one element per token.
Result<const gguf::Value*> find_per_token(const gguf::Metadata& metadata, std::string_view key, size_t n_tokens) {
  const gguf::Value* value = metadata.find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) return invalid("{} is not an array", key);
  if (value->size() != n_tokens) return invalid("{} has {} elements for {} tokens", key, value->size(), n_tokens);
  return value;
}

}  // namespace

Result<Vocabulary> Vocabulary::load(const gguf::Metadata& metadata) {
  const gguf::Value* tokens = metadata.find(kTokensKey);
  if (tokens == nullptr) return invalid("{} is missing", kTokensKey);
  if (!tokens->is_array() || tokens->element_type() != gguf::ValueType::kString) {
    return invalid("{} is not an array of strings", kTokensKey);
  }
  const std::span<const std::string_view> texts = tokens->strings();
  if (texts.empty()) return invalid("{} is empty", kTokensKey);
  if (texts.size() > size_t(std::numeric_limits<TokenId>::max())) {
    return invalid("{} has {} elements, more than ids can count", kTokensKey, texts.size());
  }

  Vocabulary v;
  size_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  v.texts_.reserve(bytes);
  v.offsets_.reserve(texts.size() + 1);
  v.offsets_.push_back(0);
  size_t n_empty = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) {  // an empty token would match everywhere; the name is that of the reference
      v.texts_ += fmt::format("[EMPTY_{}]", i);
      ++n_empty;
    } else {
      v.texts_ += texts[i];
    }
    if (v.texts_.size() > size_t(std::numeric_limits<int32_t>::max()))
      return invalid("{} holds 2 GiB or more", kTokensKey);
    v.longest_text_ = std::max(v.longest_text_, v.texts_.size() - v.offsets_.back());
    v.offsets_.push_back(uint32_t(v.texts_.size()));
  }
  if (n_empty > 0) log_warning("{}: {} empty tokens are given names of their own", kTokensKey, n_empty);

  v.types_.assign(texts.size(), TokenType::kNormal);
  HC_TRY(v.read_types(metadata));
  HC_TRY(v.read_scores(metadata));
  HC_TRY(v.read_byte_tokens());
  v.build_index();
  return v;
}

Result<void> Vocabulary::read_types(const gguf::Metadata& metadata) {
  HC_ASSIGN(const gguf::Value* types, find_per_token(metadata, kTypesKey, size()));
  if (types == nullptr) return {};
  has_types_ = true;
  for (size_t i = 0; i < size(); ++i) {
    const std::optional<int64_t> type = types->int_at(i);
    if (!type || *type < 0 || *type > int64_t(TokenType::kByte)) {
      return invalid("{}[{}] is not a token type (1 to 6)", kTypesKey, i);
    }
    types_[i] = *type == 0 ? TokenType::kUnused : TokenType(*type);  // 0: "undefined", nothing can be known of it
  }
  return {};
}

Result<void> Vocabulary::read_scores(const gguf::Metadata& metadata) {
  HC_ASSIGN(const gguf::Value* scores, find_per_token(metadata, kScoresKey, size()));
  if (scores == nullptr) return {};
  scores_.resize(size());
  for (size_t i = 0; i < size(); ++i) {
    const std::optional<double> score = scores->float_at(i);
    if (!score || std::isnan(*score)) return invalid("{}[{}] is not a number", kScoresKey, i);
    scores_[i] = float(*score);
  }
  return {};
}

Result<void> Vocabulary::read_byte_tokens() {
  byte_tokens_.fill(kNoToken);
  for (size_t i = 0; i < size(); ++i) {
    if (types_[i] != TokenType::kByte) continue;
    const int byte = parse_byte_token(text(TokenId(i)));
    if (byte < 0) {
      return invalid("{}[{}] is a byte token but its text is '{}', not <0xNN>", kTokensKey, i,
                     escape_for_display(text(TokenId(i)), 40));
    }
    byte_tokens_[size_t(byte)] = TokenId(i);
  }
  return {};
}

uint8_t Vocabulary::byte_of(TokenId id) const { return uint8_t(parse_byte_token(text(id))); }

void Vocabulary::build_index() {
  slots_.assign(std::bit_ceil(2 * size()), Slot{});
  const size_t mask = slots_.size() - 1;
  size_t n_duplicates = 0;
  for (size_t i = 0; i < size(); ++i) {
    const std::string_view key = text(TokenId(i));
    const uint32_t hash = hash_text(key);
    size_t at = hash & mask;
    while (slots_[at].id != kNoToken && !(slots_[at].hash == hash && text_of(slots_[at]) == key)) at = (at + 1) & mask;
    if (slots_[at].id != kNoToken) ++n_duplicates;
    slots_[at] = {hash, TokenId(i), offsets_[i], uint32_t(key.size())};
  }
  if (n_duplicates > 0) log_warning("{}: {} duplicate texts; the last of each is used", kTokensKey, n_duplicates);
}

TokenId Vocabulary::find_hashed(std::string_view key, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].id != kNoToken; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && text_of(slots_[at]) == key) return slots_[at].id;
  }
  return kNoToken;
}

TokenId Vocabulary::find(std::string_view key) const {
  return key.size() > longest_text_ ? kNoToken : find_hashed(key, hash_text(key));
}

void Vocabulary::find_many(std::span<const std::string_view> keys, std::span<TokenId> ids) const {
  constexpr size_t kBlock = 64;  // lookups in flight
  const size_t mask = slots_.size() - 1;
  std::array<uint32_t, kBlock> hashes;
  for (size_t begin = 0; begin < keys.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, keys.size() - begin);
    for (size_t i = 0; i < n; ++i) {
      hashes[i] = hash_text(keys[begin + i]);
      __builtin_prefetch(&slots_[hashes[i] & mask]);
    }
    for (size_t i = 0; i < n; ++i) __builtin_prefetch(texts_.data() + slots_[hashes[i] & mask].begin);
    for (size_t i = 0; i < n; ++i) ids[begin + i] = find_hashed(keys[begin + i], hashes[i]);
  }
}

TokenId Vocabulary::find_plain(std::string_view key) const {
  const TokenId id = find(key);
  return id != kNoToken && is_plain(id) ? id : kNoToken;
}

}  // namespace honeycrisp::text
