#include "text/jinja/python_text.h"

#include "base/utf8.h"
#include "text/jinja/ast.h"
#include "text/jinja/escape.h"
#include "text/jinja/operators.h"
#include "text/jinja/stable_sort.h"
#include "text/jinja/unicode.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace honeycrisp::text::jinja {
namespace {

/// Copies text, with some characters replaced: `escape(code_point, scratch)` returns true where it wrote a replacement.
template <class Escape>
void append_replacing(TextBuilder& out, const Text& text, Escape&& escape) {
  const std::string_view bytes = text.bytes();
  MarkCursor marks(text);
  std::string replacement;
  size_t copied = 0;
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, i);
    replacement.clear();
    if (c.valid && escape(c.code_point, replacement)) {
      if (copied < i) out.append(text, copied, i);
      out.append(replacement, marks.is_input(i));
      copied = i + c.length;
    }
    i += c.length;
  }
  if (copied < bytes.size()) out.append(text, copied, bytes.size());
}

bool escape_for_repr(char32_t c, char quote, std::string& out) {
  if (c == '\\' || c == static_cast<char32_t>(quote)) {
    out = {'\\', static_cast<char>(c)};
  } else if (c == '\n' || c == '\r' || c == '\t') {
    out = c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
  } else if (is_printable(c)) {
    return false;
  } else {
    const auto code = static_cast<uint32_t>(c);
    out = code < 0x100     ? fmt::format("\\x{:02x}", code)
          : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                           : fmt::format("\\U{:08x}", code);
  }
  return true;
}

char repr_quote(std::string_view text) {
  return text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
}

void append_string_repr(TextBuilder& out, const Text& text) {
  const char quote = repr_quote(text.bytes());
  if (text.is_markup()) out.append("Markup(");
  out.append(std::string_view(&quote, 1));
  append_replacing(out, text,
                   [&](char32_t c, std::string& replacement) { return escape_for_repr(c, quote, replacement); });
  out.append(std::string_view(&quote, 1));
  if (text.is_markup()) out.append(")");
}

void append_json_string(TextBuilder& out, const Text& text, bool ensure_ascii) {
  out.append("\"");
  append_replacing(out, text, [&](char32_t c, std::string& replacement) {
    static constexpr std::string_view kControls = "\b\f\n\r\t", kLetters = "bfnrt";
    if (c == '"' || c == '\\') {
      replacement = {'\\', static_cast<char>(c)};
    } else if (const size_t known = c < 0x20 ? kControls.find(static_cast<char>(c)) : std::string_view::npos;
               known != std::string_view::npos) {
      replacement = {'\\', kLetters[known]};
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
      replacement = fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (ensure_ascii && c >= 0x10000) {
      const auto rest = static_cast<uint32_t>(c) - 0x10000;
      replacement = fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      return false;
    }
    return true;
  });
  out.append("\"");
}

template <class Each>
void append_joined(TextBuilder& out, std::string_view open, size_t count, std::string_view close, Each&& each) {
  out.append(open);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out.append(", ");
    each(i);
  }
  out.append(close);
}

void append_dict_repr(Runtime& runtime, TextBuilder& out, const Dict& dict) {
  append_joined(out, "{", dict.size(), "}", [&](size_t i) {
    append_repr(runtime, out, dict.entries()[i].key);
    out.append(": ");
    append_repr(runtime, out, dict.entries()[i].value);
  });
}

void append_items_repr(Runtime& runtime, TextBuilder& out, const std::vector<Value>& items, std::string_view open,
                       std::string_view close) {
  append_joined(out, open, items.size(), close, [&](size_t i) { append_repr(runtime, out, items[i]); });
}

/// Objects that have no literal form.
void append_object_repr(Runtime& runtime, TextBuilder& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kDictView:
      out.append(type_name(value));
      return append_items_repr(runtime, out, iterate(runtime, value), "([", "])");
    case Kind::kRange: {
      const Range& range = value.as<Range>();
      return out.append(range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                                        : fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
    }
    case Kind::kNamespace: {
      Dict attributes;
      for (const auto& [name, attribute] : value.as<Namespace>().attributes) attributes.set(Value(name), attribute);
      out.append("<Namespace ");
      append_dict_repr(runtime, out, attributes);
      return out.append(">");
    }
    case Kind::kLoop:
      return out.append(fmt::format("<LoopContext {}/{}>", value.as<Loop>().index + 1, value.as<Loop>().items.size()));
    case Kind::kMacro:
      out.append("<Macro ");
      append_repr(runtime, out, macro_name(value));
      return out.append(">");
    case Kind::kFunction: return out.append(fmt::format("<built-in {}>", value.as<Function>().signature->name));
    default: return out.append(fmt::format("<{} object>", type_name(value)));  // Python adds an address
  }
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, TextBuilder& out, const JsonStyle& style)
      : runtime_(runtime), out_(out), style_(style) {}

  void write(const Value& value, size_t level) {
    runtime_.budget().step();
    switch (value.kind()) {
      case Kind::kNone: return out_.append("null");
      case Kind::kBool: return out_.append(value.as_int() != 0 ? "true" : "false");
      case Kind::kInt: return out_.append(fmt::to_string(value.as_int()));
      case Kind::kFloat: return out_.append(number(value.as_float()));
      case Kind::kString: return append_json_string(out_, value.as_text(), style_.ensure_ascii);
      case Kind::kList:
      case Kind::kTuple: return write_list(value.items(), level);
      case Kind::kDict: return write_dict(value.as_dict(), level);
      default: raise("Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_repr(value);
  }

  void new_line(size_t level) {
    if (!style_.indent) return;
    out_.append("\n");
    out_.append_repeated(*style_.indent, level);
  }

  void write_list(const std::vector<Value>& items, size_t level) {
    if (items.empty()) return out_.append("[]");
    const DepthGuard guard(runtime_.budget());
    out_.append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out_.append("]");
  }

  void write_dict(const Dict& dict, size_t level) {
    if (dict.empty()) return out_.append("{}");
    const DepthGuard guard(runtime_.budget());
    std::vector<const Dict::Entry*> entries;
    entries.reserve(dict.size());
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      stable_sort(entries, [&](const Dict::Entry* a, const Dict::Entry* b) {
        return compare(runtime_, a->key, b->key, "<").value_or(0) < 0;
      });
    }
    out_.append("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(level + 1);
      write_key(entries[i]->key);
      out_.append(style_.key_separator);
      write(entries[i]->value, level + 1);
    }
    new_line(level);
    out_.append("}");
  }

  void write_key(const Value& key) {
    if (key.is_string()) return append_json_string(out_, key.as_text(), style_.ensure_ascii);
    if (!key.is_number() && !key.is_none()) raise("keys must be str, int, float, bool or None, not {}", type_name(key));
    out_.append("\"");
    write(key, 0);
    out_.append("\"");
  }

  Runtime& runtime_;
  TextBuilder& out_;
  const JsonStyle& style_;
};

}  // namespace

void append_escaped(TextBuilder& out, const Text& text) {
  append_replacing(out, text, [](char32_t c, std::string& replacement) {
    switch (c) {
      case '&': replacement = "&amp;"; return true;
      case '<': replacement = "&lt;"; return true;
      case '>': replacement = "&gt;"; return true;
      case '"': replacement = "&#34;"; return true;
      case '\'': replacement = "&#39;"; return true;
      default: return false;
    }
  });
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(scientific.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);  // "1e+16": both write two digits of exponent at least
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string quote_string(std::string_view text) {
  const char quote = repr_quote(text);
  std::string out(1, quote), replacement;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    out += escape_for_repr(c.code_point, quote, replacement) ? std::string_view(replacement) : text.substr(i, c.length);
    i += c.length;
  }
  return out + quote;
}

void append_repr(Runtime& runtime, TextBuilder& out, const Value& value) {
  runtime.budget().step();
  switch (value.kind()) {
    case Kind::kUndefined: return out.append("Undefined");
    case Kind::kNone: return out.append("None");
    case Kind::kBool: return out.append(value.as_int() != 0 ? "True" : "False");
    case Kind::kInt: return out.append(fmt::to_string(value.as_int()));
    case Kind::kFloat: return out.append(float_repr(value.as_float()));
    case Kind::kString: return append_string_repr(out, value.as_text());
    default: break;
  }
  const DepthGuard guard(runtime.budget());
  switch (value.kind()) {
    case Kind::kList: return append_items_repr(runtime, out, value.items(), "[", "]");
    case Kind::kTuple:
      return append_items_repr(runtime, out, value.items(), "(", value.items().size() == 1 ? ",)" : ")");
    case Kind::kDict: return append_dict_repr(runtime, out, value.as_dict());
    default: return append_object_repr(runtime, out, value);
  }
}

void append_str(Runtime& runtime, TextBuilder& out, const Value& value) {
  if (value.is_string()) return out.append(value.as_text());
  if (!value.is_undefined()) append_repr(runtime, out, value);
}

TextPtr to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text_ptr();
  TextBuilder out(runtime.budget());
  append_str(runtime, out, value);
  return out.finish();
}

TextPtr to_plain_text(Runtime& runtime, const Value& value) {
  if (!value.is_string() || !value.as_text().is_markup()) return to_text(runtime, value);
  TextBuilder out(runtime.budget());
  out.append(value.as_text());
  return out.finish();
}

Value macro_name(const Value& macro) { return Value(macro.as<Macro>().definition->name); }

void append_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(runtime, out, style).write(value, 0);
}

}  // namespace honeycrisp::text::jinja
