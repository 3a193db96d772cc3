// UTF-8 decoding that never reads past the end and rejects overlong forms, surrogates and values above U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace honeycrisp {

struct Utf8Char {
  char32_t code_point;  // U+FFFD where the bytes are malformed
  uint32_t length;      // bytes consumed, 1..4; 1 for a malformed byte
  bool valid;
};

/// Decodes the character at text[at]; requires at < text.size().
inline Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const size_t left = text.size() - at;
  const unsigned char b = byte(0);
  if (b < 0x80) return {b, 1, true};
  const auto continuation = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  if (b >= 0xC2 && b <= 0xDF && left >= 2 && continuation(1))
    return {char32_t((b & 0x1F) << 6 | (byte(1) & 0x3F)), 2, true};
  if (b >= 0xE0 && b <= 0xEF && left >= 3 && continuation(1) && continuation(2)) {
    const char32_t c = char32_t((b & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F));
    if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) return {c, 3, true};
  }
  if (b >= 0xF0 && b <= 0xF4 && left >= 4 && continuation(1) && continuation(2) && continuation(3)) {
    const char32_t c = char32_t((b & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F));
    if (c >= 0x10000 && c <= 0x10FFFF) return {c, 4, true};
  }
  return {0xFFFD, 1, false};
}

inline void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += char(c);
  } else if (c < 0x800) {
    out += char(0xC0 | c >> 6);
    out += char(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += char(0xE0 | c >> 12);
    out += char(0x80 | (c >> 6 & 0x3F));
    out += char(0x80 | (c & 0x3F));
  } else {
    out += char(0xF0 | c >> 18);
    out += char(0x80 | (c >> 12 & 0x3F));
    out += char(0x80 | (c >> 6 & 0x3F));
    out += char(0x80 | (c & 0x3F));
  }
}

inline bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    if (!c.valid) return false;
    i += c.length;
  }
  return true;
}

}  // namespace honeycrisp
