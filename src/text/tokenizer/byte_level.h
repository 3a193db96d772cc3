// The reversible map between bytes and printable characters with which byte-level BPE vocabularies are written
// (`bytes_to_unicode` of GPT-2, https://github.com/openai/gpt-2/blob/master/src/encoder.py): printable Latin-1 stands
// for itself, the other 68 bytes for U+0100 and up, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace honeycrisp::text {

/// The vocabulary's spelling of raw bytes.
void append_byte_level(std::string& out, std::string_view raw);

/// The byte that a character of the spelling stands for; nullopt for characters outside the map.
std::optional<uint8_t> byte_of_character(char32_t c);

/// Raw bytes of a vocabulary entry. Characters outside the map stay as they are.
std::string from_byte_level(std::string_view spelling);

}  // namespace honeycrisp::text
