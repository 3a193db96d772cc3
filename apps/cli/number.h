// Numbers that users type: the whole text or nothing.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace honeycrisp::cli {

/// nullopt unless all of `text` is one number that T holds. A leading + is allowed, blanks are not.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const auto [stop, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || stop != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace honeycrisp::cli
