// Utf8Stream: what is shown never depends on how the bytes were cut into pushes.
#include "base/utf8.h"
#include "text/tokenizer.h"

#include <algorithm>

namespace honeycrisp::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Length of the longest prefix of text[at…] that some well-formed character begins with; 0 if its first byte begins
/// none. Only meaningful where the character itself is not well-formed.
size_t broken_prefix_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  const size_t needed = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : (lead & 0xF0) == 0xE0        ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (needed == 0) return 0;
  // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  size_t length = 1;
  while (length < needed && at + length < text.size()) {
    const unsigned char b = byte(length);
    if (length == 1 ? b < low || b > high : (b & 0xC0) != 0x80) break;
    ++length;
  }
  return length;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string shown;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Char c = decode_utf8(pending_, at);
    if (c.valid) {
      shown.append(pending_, at, c.length);
      at += c.length;
      continue;
    }
    const size_t broken = broken_prefix_length(pending_, at);
    if (broken > 0 && at + broken == pending_.size()) break;  // may still become a character
    shown += kReplacement;
    at += std::max<size_t>(broken, 1);
  }
  pending_.erase(0, at);
  return shown;
}

std::string Utf8Stream::finish() {
  std::string shown = pending_.empty() ? std::string() : std::string(kReplacement);
  pending_.clear();
  return shown;
}

}  // namespace honeycrisp::text
