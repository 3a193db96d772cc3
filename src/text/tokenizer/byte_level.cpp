// The 256-entry table and its inverse, made at compile time.
#include "text/tokenizer/byte_level.h"

#include "base/utf8.h"

#include <array>

namespace honeycrisp::text {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<uint16_t, 256> make_characters() {
  std::array<uint16_t, 256> characters{};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) characters[size_t(byte)] = stands_for_itself(byte) ? uint16_t(byte) : next++;
  return characters;
}
constexpr std::array<uint16_t, 256> kCharacters = make_characters();
constexpr size_t kCharacterEnd = 0x100 + 68;

constexpr std::array<int16_t, kCharacterEnd> make_bytes() {
  std::array<int16_t, kCharacterEnd> bytes{};
  for (auto& b : bytes) b = -1;
  for (size_t byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = int16_t(byte);
  return bytes;
}
constexpr std::array<int16_t, kCharacterEnd> kBytes = make_bytes();

}  // namespace

void append_byte_level(std::string& out, std::string_view raw) {
  for (const char c : raw) append_utf8(out, kCharacters[static_cast<unsigned char>(c)]);
}

std::optional<uint8_t> byte_of_character(char32_t c) {
  if (c >= kCharacterEnd || kBytes[c] < 0) return std::nullopt;
  return uint8_t(kBytes[c]);
}

std::string from_byte_level(std::string_view spelling) {
  std::string raw;
  raw.reserve(spelling.size());
  for (size_t at = 0; at < spelling.size();) {
    const Utf8Char c = decode_utf8(spelling, at);
    const std::optional<uint8_t> byte = c.valid ? byte_of_character(c.code_point) : std::nullopt;
    if (byte) {
      raw += char(*byte);
    } else {
      raw.append(spelling, at, c.length);
    }
    at += c.length;
  }
  return raw;
}

}  // namespace honeycrisp::text
