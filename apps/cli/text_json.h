// Text on its way into JSON: JSON strings are UTF-8, names and metadata from files may be anything.
#pragma once

#include "base/utf8.h"

#include <string>
#include <string_view>

namespace honeycrisp::cli {

/// Every malformed byte becomes U+FFFD.
inline std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    append_utf8(out, c.code_point);
    i += c.length;
  }
  return out;
}

}  // namespace honeycrisp::cli
