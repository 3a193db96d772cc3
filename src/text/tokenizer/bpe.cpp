// The merge table and the encoding of one chunk.
#include "text/tokenizer/bpe.h"

#include "base/hash_seed.h"
#include "base/text_escape.h"
#include "base/utf8.h"
#include "text/tokenizer/byte_level.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace honeycrisp::text {
namespace {

constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

uint64_t pair_of(TokenId left, TokenId right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

size_t hash_pair(uint64_t pair) {
  pair = (pair ^ hash_seed()) * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  return size_t(pair ^ (pair >> 29));
}

}  // namespace

Result<Bpe> Bpe::load(const gguf::Metadata& metadata, const Vocabulary& vocabulary, BpeOptions options) {
  const gguf::Value* merges = metadata.find(kMergesKey);
  if (merges == nullptr) return invalid("{} is missing", kMergesKey);
  if (!merges->is_array() || merges->element_type() != gguf::ValueType::kString) {
    return invalid("{} is not an array of strings", kMergesKey);
  }
  if (merges->size() >= std::numeric_limits<uint32_t>::max()) return invalid("{} is too long", kMergesKey);
  Bpe bpe;
  bpe.options_ = options;
  HC_TRY(bpe.read_merges(merges->strings(), vocabulary));
  for (size_t byte = 0; byte < bpe.byte_ids_.size(); ++byte) {
    std::string spelling;
    const char raw = char(byte);
    append_byte_level(spelling, {&raw, 1});
    bpe.byte_ids_[byte] = vocabulary.find_plain(spelling);
  }
  return bpe;
}

Result<void> Bpe::read_merges(std::span<const std::string_view> merges, const Vocabulary& vocabulary) {
  slots_.assign(std::bit_ceil(2 * merges.size() + 1), Merge{});
  constexpr size_t kBlock = 64;                    // merges looked up together; Gemma 4 has half a million
  std::array<std::string_view, 3 * kBlock> texts;  // left, right and joined text of each
  std::array<TokenId, 3 * kBlock> ids;
  std::array<std::string, kBlock> joined;
  for (size_t begin = 0; begin < merges.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, merges.size() - begin);
    for (size_t i = 0; i < n; ++i) {
      const std::string_view merge = merges[begin + i];
      const size_t space = merge.find(' ', 1);  // from 1: the left part may itself begin with a space
      if (space == std::string_view::npos) {
        return invalid("{}[{}] '{}' has no space", kMergesKey, begin + i, escape_for_display(merge, 60));
      }
      texts[3 * i] = merge.substr(0, space);
      texts[3 * i + 1] = merge.substr(space + 1);
      joined[i].assign(texts[3 * i]).append(texts[3 * i + 1]);
      texts[3 * i + 2] = joined[i];
    }
    vocabulary.find_many(std::span(texts).first(3 * n), ids);
    for (size_t i = 0; i < n; ++i) {
      if (std::find(&ids[3 * i], &ids[3 * i] + 3, kNoToken) != &ids[3 * i] + 3) {
        return invalid("{}[{}] '{}': its parts or its result are not in the vocabulary", kMergesKey, begin + i,
                       escape_for_display(merges[begin + i], 60));
      }
      __builtin_prefetch(&slots_[hash_pair(pair_of(ids[3 * i], ids[3 * i + 1])) & (slots_.size() - 1)], 1);
    }
    for (size_t i = 0; i < n; ++i) {
      // Plain text must not become a control token, not even by way of merges.
      const TokenId merged = ids[3 * i + 2];
      if (vocabulary.is_plain(merged)) add_merge(ids[3 * i], ids[3 * i + 1], {uint32_t(begin + i), merged});
    }
  }
  return {};
}

void Bpe::add_merge(TokenId left, TokenId right, MergeCandidate merge) {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = slots_.size() - 1;
  size_t at = hash_pair(pair) & mask;
  while (slots_[at].pair != kNoPair && slots_[at].pair != pair) at = (at + 1) & mask;
  if (slots_[at].pair == kNoPair) slots_[at] = {pair, merge};  // of duplicates the first one counts
}

std::optional<MergeCandidate> Bpe::find_merge(TokenId left, TokenId right) const {
  if (left == kNoToken || right == kNoToken) return std::nullopt;
  const uint64_t pair = pair_of(left, right);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash_pair(pair) & mask; slots_[at].pair != kNoPair; at = (at + 1) & mask) {
    if (slots_[at].pair == pair) return slots_[at].candidate;
  }
  return std::nullopt;
}

bool Bpe::encode_whole(const Vocabulary& vocabulary, std::string_view chunk, std::vector<TokenId>& ids) const {
  if (chunk.size() > vocabulary.longest_text()) return false;
  if (!options_.whole_chunks && !(options_.whole_newlines && chunk.find_first_not_of('\n') == std::string_view::npos)) {
    return false;
  }
  std::string spelling;
  if (options_.byte_level) {
    append_byte_level(spelling, chunk);
    chunk = spelling;
  }
  const TokenId id = vocabulary.find_plain(chunk);
  if (id == kNoToken) return false;
  ids.push_back(id);
  return true;
}

void Bpe::encode(const Vocabulary& vocabulary, std::string_view chunk, MergeQueue& queue,
                 std::vector<TokenId>& ids) const {
  if (encode_whole(vocabulary, chunk, ids)) return;
  queue.clear();
  for (size_t at = 0; at < chunk.size();) {
    size_t length = 1;
    TokenId id;
    if (options_.byte_level) {
      id = byte_ids_[static_cast<unsigned char>(chunk[at])];
    } else {
      length = decode_utf8(chunk, at).length;
      id = vocabulary.find_plain(chunk.substr(at, length));
    }
    queue.add(id, uint32_t(at), uint32_t(length));
    at += length;
  }
  queue.run([this](const Symbol& left, const Symbol& right) { return find_merge(left.id, right.id); });
  for (int32_t i = queue.symbols.empty() ? -1 : 0; i >= 0; i = queue.symbols[size_t(i)].next) {
    const Symbol& symbol = queue.symbols[size_t(i)];
    if (symbol.id != kNoToken) {
      ids.push_back(symbol.id);
    } else if (!options_.byte_level) {
      for (const char c : chunk.substr(symbol.begin, symbol.length)) {
        const TokenId byte = vocabulary.byte_token(static_cast<unsigned char>(c));
        if (byte != kNoToken) ids.push_back(byte);
      }
    }
  }
}

}  // namespace honeycrisp::text
