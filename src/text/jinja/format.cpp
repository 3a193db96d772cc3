// The two formatting languages of Python's str: `%` and str.format with its format specifications.
#include "base/utf8.h"
#include "text/jinja/escape.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/string_ops.h"

#include <cmath>
#include <fmt/format.h>
#include <optional>

namespace honeycrisp::text::jinja {
namespace {

constexpr int64_t kMaxPrecision = 500;

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  char grouping = '\0';  // , or _
  bool is_alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

int64_t read_number(std::string_view text, size_t& at) {
  int64_t number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = number * 10 + (text[at] - '0');
    if (number > 100'000'000) raise("too many decimal digits in format string");
  }
  return number;
}

/// [[fill]align][sign][#][0][width][grouping][.precision][type]
FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  const size_t fill_size = text.empty() ? 0 : code_point_size(text, 0);
  if (fill_size > 0 && is_align(fill_size)) {
    spec.fill = text.substr(0, fill_size);
    spec.align = text[fill_size];
    at = fill_size + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') {
    spec.is_alternate = true;
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    ++at;
  }
  spec.width = read_number(text, at);
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.grouping = text[at++];
  if (at < text.size() && text[at] == '.') {
    const size_t digits = ++at;
    spec.precision = read_number(text, at);
    if (at == digits) raise("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) raise("Invalid format specifier '{}'", text);
  return spec;
}

std::string group_digits(std::string_view digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

/// Digits of |value| as the types e f g % (and none, n) write them.
std::string float_digits(double value, const FormatSpec& spec) {
  const char type = spec.type;
  const bool is_upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(value)) return std::isnan(value) ? (is_upper ? "NAN" : "nan") : (is_upper ? "INF" : "inf");
  if (spec.precision > kMaxPrecision) raise("precision too big");
  value = std::abs(value);
  if (type == '\0' && spec.precision < 0) return float_repr(value);
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  switch (type) {
    case 'e': return fmt::format("{:.{}e}", value, precision);
    case 'E': return fmt::format("{:.{}E}", value, precision);
    case 'f':
    case 'F': return fmt::format("{:.{}f}", value, precision);
    case '%': return fmt::format("{:.{}f}%", value * 100, precision);
    case 'G': return fmt::format("{:.{}G}", value, precision == 0 ? 1 : precision);
    case 'g':
    case 'n': return fmt::format("{:.{}g}", value, precision == 0 ? 1 : precision);
    case '\0': {  // like g, but with a decimal point, and exponents from the precision on
      std::string out = fmt::format("{:.{}g}", value, precision == 0 ? 1 : precision);
      if (out.find_first_of(".e") == std::string::npos) out += ".0";
      return out;
    }
    default: raise("Unknown format code '{}' for object of type 'float'", type);
  }
}

struct NumberText {
  std::string sign, prefix, digits;
};

std::string sign_text(bool is_negative, char sign) {
  return is_negative ? "-" : sign == '-' ? "" : std::string(1, sign);
}

NumberText format_integer(int64_t value, const FormatSpec& spec) {
  const uint64_t magnitude = value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  NumberText out{sign_text(value < 0, spec.sign), "", ""};
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n': out.digits = fmt::to_string(magnitude); break;
    case 'b': out = {out.sign, "0b", fmt::format("{:b}", magnitude)}; break;
    case 'o': out = {out.sign, "0o", fmt::format("{:o}", magnitude)}; break;
    case 'x': out = {out.sign, "0x", fmt::format("{:x}", magnitude)}; break;
    case 'X': out = {out.sign, "0X", fmt::format("{:X}", magnitude)}; break;
    default: raise("Unknown format code '{}' for object of type 'int'", spec.type);
  }
  if (!spec.is_alternate) out.prefix.clear();
  if (spec.grouping != '\0')
    out.digits = group_digits(out.digits, spec.grouping, spec.type == '\0' || spec.type == 'd' ? 3 : 4);
  return out;
}

NumberText format_float(double value, const FormatSpec& spec) {
  NumberText out{sign_text(std::signbit(value) && !std::isnan(value), spec.sign), "", float_digits(value, spec)};
  if (spec.grouping != '\0') {
    const size_t whole = std::min(out.digits.find_first_not_of("0123456789"), out.digits.size());
    out.digits = group_digits(out.digits.substr(0, whole), spec.grouping, 3) + out.digits.substr(whole);
  }
  return out;
}

void append_padded_number(TextBuilder& out, const NumberText& number, const FormatSpec& spec) {
  const size_t size = number.sign.size() + number.prefix.size() + number.digits.size();
  const size_t missing = static_cast<size_t>(spec.width) > size ? static_cast<size_t>(spec.width) - size : 0;
  const char align = spec.align == '\0' ? '>' : spec.align;
  const size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  const size_t inside = align == '=' ? missing : 0;
  out.append_repeated(spec.fill, before);
  out.append(number.sign + number.prefix);
  out.append_repeated(spec.fill, inside);
  out.append(number.digits);
  out.append_repeated(spec.fill, missing - before - inside);
}

void append_padded_text(Runtime& runtime, TextBuilder& out, TextPtr text, const FormatSpec& spec) {
  if (spec.align == '=') raise("'=' alignment not allowed in string format specifier");
  if (spec.precision >= 0)
    text = slice_text(runtime.budget(), text, 0, text->offset_of(static_cast<size_t>(spec.precision)));
  const size_t missing =
      static_cast<size_t>(spec.width) > text->length() ? static_cast<size_t>(spec.width) - text->length() : 0;
  const size_t before = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  out.append_repeated(spec.fill, before);
  out.append(*text);
  out.append_repeated(spec.fill, missing - before);
}

/// format(value, spec)
void append_formatted(Runtime& runtime, TextBuilder& out, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return append_str(runtime, out, value);
  const FormatSpec spec = parse_spec(spec_text);
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's') raise("Unknown format code '{}' for object of type 'str'", spec.type);
    return append_padded_text(runtime, out, value.text_ptr(), spec);
  }
  if (!value.is_number()) raise("unsupported format string passed to {}.__format__", type_name(value));
  const bool wants_float = spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is(Kind::kFloat) || wants_float)
    return append_padded_number(out, format_float(value.as_float(), spec), spec);
  if (spec.precision >= 0) raise("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    std::string character;
    if (value.as_int() < 0 || value.as_int() > 0x10FFFF) raise("%c arg not in range(0x110000)");
    append_utf8(character, static_cast<char32_t>(value.as_int()));
    return append_padded_text(runtime, out, std::make_shared<const Text>(std::move(character)), spec);
  }
  append_padded_number(out, format_integer(value.as_int(), spec), spec);
}

/// One run of str.format over a format string.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments, bool escapes)
      : runtime_(runtime), arguments_(arguments), escapes_(escapes) {}

  void run(TextBuilder& out, const Text& text, int nesting) {
    const std::string_view bytes = text.bytes();
    size_t copied = 0;
    const auto copy_to = [&](size_t end) { out.append(text, copied, end); };
    for (size_t i = bytes.find_first_of("{}"); i != std::string_view::npos; i = bytes.find_first_of("{}", copied)) {
      copy_to(i);
      if (i + 1 < bytes.size() && bytes[i + 1] == bytes[i]) {
        out.append(text, i, i + 1);
        copied = i + 2;
        continue;
      }
      if (bytes[i] == '}') raise("Single '}}' encountered in format string");
      const size_t end = field_end(bytes, i + 1);
      append_field(out, bytes.substr(i + 1, end - i - 1), nesting);
      copied = end + 1;
    }
    copy_to(bytes.size());
  }

 private:
  static size_t field_end(std::string_view bytes, size_t from) {
    int open = 1;
    for (size_t i = from; i < bytes.size(); ++i) {
      if (bytes[i] == '{') ++open;
      if (bytes[i] == '}' && --open == 0) return i;
    }
    raise("expected '}}' before end of string");
  }

  void append_field(TextBuilder& out, std::string_view field, int nesting) {
    runtime_.budget().step();
    size_t name_end = 0;  // [ ] may hold : and !
    bool in_brackets = false;
    for (; name_end < field.size(); ++name_end) {
      const char c = field[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == ':' || c == '!')) break;
    }
    Value value = lookup(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) raise("expected ':' after conversion specifier");
      value = convert(value, rest[1]);
      rest = rest.substr(2);
    }
    std::string spec(rest.empty() ? rest : rest.substr(1));
    if (spec.find('{') != std::string::npos) {
      if (nesting > 0) raise("Max string recursion exceeded");
      TextBuilder nested(runtime_.budget());
      run(nested, Text(std::move(spec)), nesting + 1);
      spec = nested.bytes();
    }
    if (!escapes_ || nesting > 0 || (value.is_string() && value.as_text().is_markup())) {
      return append_formatted(runtime_, out, value, spec);
    }
    TextBuilder formatted(runtime_.budget());
    append_formatted(runtime_, formatted, value, spec);
    append_escaped(out, *formatted.finish());
  }

  Value convert(const Value& value, char conversion) {
    if (conversion == 's') return to_text(runtime_, value);
    if (conversion != 'r') raise("Unknown conversion specifier '{}'", conversion);
    TextBuilder out(runtime_.budget());
    append_repr(runtime_, out, value);
    return out.finish();
  }

  /// name(.attribute | [index])*
  Value lookup(std::string_view path) {
    size_t at = std::min(path.find_first_of(".["), path.size());
    Value value = first(path.substr(0, at));
    while (at < path.size()) {
      if (path[at] == '.') {
        const size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        value = get_attribute(runtime_, value, Value(path.substr(at + 1, end - at - 1)));
        at = end;
        continue;
      }
      const size_t end = path.find(']', at);
      if (path[at] != '[' || end == std::string_view::npos) raise("expected '}}' before end of string");
      const std::string_view key = path.substr(at + 1, end - at - 1);
      const bool is_index = !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
      value = get_item(runtime_, value, is_index ? Value(parse_int(key, 10).value_or(0)) : Value(key));
      at = end + 1;
    }
    return value;
  }

  Value first(std::string_view name) {
    const bool is_index = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_index) {
      if (const Value* value = arguments_.find(name)) return *value;
      raise("KeyError: {}", quote_string(name));
    }
    if (name.empty() == is_numbered_ && (name.empty() || next_ > 0)) {
      raise("cannot switch between manual field specification and automatic field numbering");
    }
    if (!name.empty()) is_numbered_ = true;
    const auto index = name.empty() ? next_++ : static_cast<size_t>(parse_int(name, 10).value_or(0));
    if (index >= arguments_.positional.size())
      raise("Replacement index {} out of range for positional args tuple", index);
    return arguments_.positional[index];
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  bool escapes_;
  bool is_numbered_ = false;
  size_t next_ = 0;
};

/// One run of `text % arguments`.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& arguments, bool escapes)
      : runtime_(runtime), arguments_(arguments), escapes_(escapes) {}

  void run(TextBuilder& out, const Text& text) {
    const std::string_view bytes = text.bytes();
    size_t copied = 0;
    for (size_t i = bytes.find('%'); i != std::string_view::npos; i = bytes.find('%', copied)) {
      out.append(text, copied, i);
      copied = append_conversion(out, bytes, i + 1);
    }
    out.append(text, copied, bytes.size());
    // Python asks for __getitem__, which an undefined value has too.
    const bool is_mapping = arguments_.is(Kind::kDict) || arguments_.is(Kind::kList) || arguments_.is_undefined();
    const size_t count = arguments_.is(Kind::kTuple) ? arguments_.items().size() : 1;
    if (!is_mapping && next_ < count) raise("not all arguments converted during string formatting");
  }

 private:
  Value next_argument() {
    if (arguments_.is(Kind::kTuple)) {
      if (next_ >= arguments_.items().size()) raise("not enough arguments for format string");
      return arguments_.items()[next_++];
    }
    if (next_++ > 0) raise("not enough arguments for format string");
    return arguments_;
  }

  size_t append_conversion(TextBuilder& out, std::string_view bytes, size_t at) {
    runtime_.budget().step();
    std::optional<Value> named;
    if (at < bytes.size() && bytes[at] == '(') {
      const size_t end = bytes.find(')', at);
      if (end == std::string_view::npos) raise("incomplete format key");
      if (!arguments_.is(Kind::kDict)) raise("format requires a mapping");
      const Value* value = arguments_.as_dict().find(bytes.substr(at + 1, end - at - 1));
      if (value == nullptr) raise("KeyError: {}", quote_string(bytes.substr(at + 1, end - at - 1)));
      named = *value;
      at = end + 1;
    }
    FormatSpec spec;
    bool is_left = false;
    for (; at < bytes.size(); ++at) {
      const char c = bytes[at];
      if (c == '-')
        is_left = true;
      else if (c == '+')
        spec.sign = '+';
      else if (c == ' ' && spec.sign != '+')
        spec.sign = ' ';
      else if (c == '#')
        spec.is_alternate = true;
      else if (c == '0')
        spec.fill = "0";
      else if (c != ' ')
        break;
    }
    spec.width = read_size(bytes, at);
    if (spec.width < 0) is_left = true, spec.width = -spec.width;
    if (at < bytes.size() && bytes[at] == '.') {
      ++at;
      spec.precision = std::max<int64_t>(read_size(bytes, at), 0);
    }
    while (at < bytes.size() && (bytes[at] == 'l' || bytes[at] == 'h' || bytes[at] == 'L')) ++at;
    if (at >= bytes.size()) raise("incomplete format");
    spec.type = bytes[at];
    if (spec.type == '%') {
      out.append("%");
      return at + 1;
    }
    const bool zero_fill = spec.fill == "0" && !is_left;
    spec.align = is_left ? '<' : zero_fill ? '=' : '>';
    if (!zero_fill) spec.fill = " ";
    append_value(out, named ? *named : next_argument(), spec);
    return at + 1;
  }

  int64_t read_size(std::string_view bytes, size_t& at) {
    if (at >= bytes.size() || bytes[at] != '*') return read_number(bytes, at);
    ++at;
    const Value size = next_argument();
    if (!size.is_integral()) raise("* wants int");
    if (size.as_int() > 100'000'000 || size.as_int() < -100'000'000) raise("width too big");
    return size.as_int();
  }

  void append_value(TextBuilder& out, const Value& value, FormatSpec spec) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': return append_text(out, value, spec);
      case 'c':
        spec.fill = " ";
        spec.align = spec.align == '=' ? '>' : spec.align;
        if (value.is_string()) {
          if (value.as_text().length() != 1) raise("%c requires int or char");
          return append_padded_text(runtime_, out, value.text_ptr(), spec);
        }
        if (!value.is_integral()) raise("%c requires int or char");
        return append_formatted(runtime_, out, value, "c");
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': return append_integer(out, value, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is_undefined()) raise_undefined(value);
        if (!value.is_number()) raise("must be real number, not {}", type_name(value));
        return append_padded_number(out, format_float(value.as_float(), spec), spec);
      default: raise("unsupported format character '{}' (0x{:x})", spec.type, static_cast<unsigned char>(spec.type));
    }
  }

  void append_text(TextBuilder& out, const Value& value, FormatSpec spec) {
    TextBuilder shown(runtime_.budget());
    const bool is_safe = value.is_string() && value.as_text().is_markup();
    if (spec.type == 's') {
      append_str(runtime_, shown, value);
    } else {
      append_repr(runtime_, shown, value);
    }
    TextPtr text = shown.finish();
    if (escapes_ && !is_safe) {
      TextBuilder escaped(runtime_.budget());
      append_escaped(escaped, *text);
      text = escaped.finish();
    }
    spec.fill = " ";
    if (spec.align == '=') spec.align = '>';
    append_padded_text(runtime_, out, std::move(text), spec);
  }

  void append_integer(TextBuilder& out, const Value& value, FormatSpec spec) {
    if (value.is_undefined()) raise_undefined(value);
    const bool is_decimal_type = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_integral() && !(is_decimal_type && value.is(Kind::kFloat))) {
      raise("%{} format: {} is required, not {}", spec.type, is_decimal_type ? "a real number" : "an integer",
            type_name(value));
    }
    const int64_t integer = value.is_integral() ? value.as_int() : float_to_int(value.as_float());
    if (is_decimal_type) spec.type = 'd';
    NumberText number = format_integer(integer, spec);
    if (spec.precision > kMaxPrecision) raise("precision too big");
    if (static_cast<int64_t>(number.digits.size()) < spec.precision) {
      number.digits.insert(0, static_cast<size_t>(spec.precision) - number.digits.size(), '0');
    }
    append_padded_number(out, number, spec);
  }

  Runtime& runtime_;
  const Value& arguments_;
  bool escapes_;
  size_t next_ = 0;
};

}  // namespace

Value format_percent(Runtime& runtime, const Text& text, const Value& arguments) {
  TextBuilder out(runtime.budget());
  PercentFormatter(runtime, arguments, text.is_markup()).run(out, text);
  return out.finish(text.is_markup());
}

Value format_braces(Runtime& runtime, const Text& text, const Arguments& arguments) {
  TextBuilder out(runtime.budget());
  BraceFormatter(runtime, arguments, text.is_markup()).run(out, text, 0);
  return out.finish(text.is_markup());
}

}  // namespace honeycrisp::text::jinja
