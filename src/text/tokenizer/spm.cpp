// Score-ordered merging.
#include "text/tokenizer/spm.h"

#include "base/utf8.h"

#include <bit>

namespace honeycrisp::text {
namespace {

/// Scores as unsigned numbers that order the other way round: the highest score gives the smallest priority.
uint32_t priority_of(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // + 0: one zero only
  return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

}  // namespace

void append_escaped_spaces(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMark;
    } else {
      out += c;
    }
  }
}

std::string unescape_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at, kSpaceMark.size()) == kSpaceMark) {
      out += ' ';
      at += kSpaceMark.size();
    } else {
      out += text[at++];
    }
  }
  return out;
}

void encode_spm(const Vocabulary& vocabulary, std::string_view escaped, TokenId unknown, MergeQueue& queue,
                std::vector<TokenId>& ids) {
  queue.clear();
  for (size_t at = 0; at < escaped.size();) {
    const size_t length = decode_utf8(escaped, at).length;
    queue.add(vocabulary.find_plain(escaped.substr(at, length)), uint32_t(at), uint32_t(length));
    at += length;
  }
  queue.run([&](const Symbol& left, const Symbol& right) -> std::optional<MergeCandidate> {
    const TokenId merged = vocabulary.find_plain(escaped.substr(left.begin, size_t{left.length} + right.length));
    if (merged == kNoToken) return std::nullopt;
    return MergeCandidate{priority_of(vocabulary.score(merged)), merged};
  });
  for (int32_t i = queue.symbols.empty() ? -1 : 0; i >= 0; i = queue.symbols[size_t(i)].next) {
    const Symbol& symbol = queue.symbols[size_t(i)];
    if (symbol.id != kNoToken) {
      ids.push_back(symbol.id);
      continue;
    }
    bool has_bytes = true;
    const std::string_view character = escaped.substr(symbol.begin, symbol.length);
    for (const char c : character) has_bytes &= vocabulary.byte_token(static_cast<unsigned char>(c)) != kNoToken;
    if (has_bytes) {
      for (const char c : character) ids.push_back(vocabulary.byte_token(static_cast<unsigned char>(c)));
    } else if (unknown != kNoToken) {
      ids.push_back(unknown);
    }
  }
}

}  // namespace honeycrisp::text
