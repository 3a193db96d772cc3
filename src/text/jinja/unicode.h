// Character classes and case mapping as Python's str has them.
#pragma once

#include <string>
#include <string_view>

namespace honeycrisp::text::jinja {

bool is_space(char32_t c);       // str.isspace and the default of str.strip
bool is_line_break(char32_t c);  // str.splitlines
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);  // decimals and superscript digits
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);  // shown as itself by repr

/// Full mappings, which may give several characters ('ß' to "SS"); appended as UTF-8.
void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);

std::string_view trim_right(std::string_view text);

}  // namespace honeycrisp::text::jinja
