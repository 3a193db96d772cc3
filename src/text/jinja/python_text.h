// How Python writes values as text: str(), repr() and json.dumps(). Marks of input survive.
#pragma once

#include "text/jinja/runtime.h"

#include <optional>
#include <string>
#include <string_view>

namespace honeycrisp::text::jinja {

/// repr() of a float: the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
std::string float_repr(double value);
/// repr() of a string, for messages.
std::string quote_string(std::string_view text);

void append_str(Runtime& runtime, TextBuilder& out, const Value& value);
void append_repr(Runtime& runtime, TextBuilder& out, const Value& value);
/// str(value); a string comes back as it is, markup flag included.
TextPtr to_text(Runtime& runtime, const Value& value);
/// The same without the markup flag.
TextPtr to_plain_text(Runtime& runtime, const Value& value);
Value macro_name(const Value& macro);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level of it; nullopt: all on one line
  std::string item_separator = ", ", key_separator = ": ";
};
void append_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace honeycrisp::text::jinja
