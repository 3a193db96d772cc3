#include "base/text_escape.h"

#include "base/utf8.h"

#include <fmt/format.h>
#include <iterator>

namespace honeycrisp {
namespace {

bool is_unsafe(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string escape_for_display(std::string_view text, size_t limit) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    if (limit != 0 && i + c.length > limit) {
      out += "…";
      break;
    }
    if (!c.valid) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[i]));
    } else if (c.code_point == '\n') {
      out += "\\n";
    } else if (c.code_point == '\t') {
      out += "\\t";
    } else if (c.code_point == '\r') {
      out += "\\r";
    } else if (c.code_point < 0x80 && is_unsafe(c.code_point)) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", uint32_t(c.code_point));
    } else if (is_unsafe(c.code_point)) {
      fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", uint32_t(c.code_point));
    } else {
      out += text.substr(i, c.length);
    }
    i += c.length;
  }
  return out;
}

}  // namespace honeycrisp
