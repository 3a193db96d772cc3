// Filters on single values and text: https://jinja.palletsprojects.com/en/stable/templates/#list-of-builtin-filters
// Parameter 0 is the value that the filter is applied to.
#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/escape.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/stable_sort.h"
#include "text/jinja/string_ops.h"
#include "text/jinja/unicode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

namespace honeycrisp::text::jinja {
namespace {

using Bound = BoundArguments;

template <Case mode>
Value filter_case(Runtime& r, Bound& a) {
  return change_case(r, to_text(r, a[0]), mode);
}
Value filter_string(Runtime& r, Bound& a) { return to_text(r, a[0]); }
Value filter_trim(Runtime& r, Bound& a) {
  return strip(r, to_text(r, a[0]), Side::kBoth, a.has_value(1) ? a.text(1).get() : nullptr);
}
Value filter_replace(Runtime& r, Bound& a) {
  const int64_t count = a.has_value(3) ? a.integer(3) : -1;
  return replace(r, to_plain_text(r, a[0]), *to_plain_text(r, a[1]), *to_plain_text(r, a[2]), count);
}
Value filter_center(Runtime& r, Bound& a) {
  return pad(r, to_text(r, a[0]), a.integer(1, 80), Align::kCenter, Text(" "));
}
Value filter_length(Runtime&, Bound& a) {
  const auto size = length(a[0]);
  if (!size) raise("object of type '{}' has no len()", type_name(a[0]));
  return *size;
}
Value filter_default(Runtime&, Bound& a) {
  const bool is_missing = a[0].is_undefined() || (a.boolean(2, false) && !is_true(a[0]));
  return is_missing ? a.get(1, Value("")) : a[0];
}
Value filter_attr(Runtime&, Bound& a) {
  if (auto value = find_attribute(a[0], a.text(1)->bytes())) return *value;
  return make_undefined_member(a[0], a[1]);
}

// numbers

Value filter_abs(Runtime&, Bound& a) {
  if (a[0].is(Kind::kFloat)) return std::abs(a[0].as_float());
  if (a[0].is_undefined()) raise_undefined(a[0]);
  if (!a[0].is_integral()) raise("bad operand type for abs(): '{}'", type_name(a[0]));
  return a[0].as_int() < 0 ? negate(a[0]) : Value(a[0].as_int());
}

Value filter_int(Runtime&, Bound& a) {
  const Value& value = a[0];
  const Value fallback = a.get(1, Value(0));
  if (value.is_undefined()) raise_undefined(value);
  if (value.is_integral()) return value.as_int();
  std::optional<double> number;
  if (value.is(Kind::kFloat)) number = value.as_float();
  if (value.is_string()) {
    if (const auto integer = parse_int(value.as_text().bytes(), a.integer(2, 10))) return *integer;
    number = parse_float(value.as_text().bytes());
  }
  if (!number || !std::isfinite(*number)) return fallback;
  return float_to_int(*number);
}

Value filter_float(Runtime&, Bound& a) {
  if (a[0].is_undefined()) raise_undefined(a[0]);
  if (a[0].is_number()) return a[0].as_float();
  const auto number = a[0].is_string() ? parse_float(a[0].as_text().bytes()) : std::nullopt;
  return number ? Value(*number) : a.get(1, Value(0.0));
}

/// Python's round(): halves to even, on the exact binary value.
Value round_common(const Value& value, int64_t precision) {
  if (value.is_integral()) {
    if (precision >= 0) return value.as_int();
    if (precision < -18) return 0;
    const auto unit = static_cast<int64_t>(std::llround(std::pow(10.0, static_cast<double>(-precision))));
    int64_t quotient = value.as_int() / unit, rest = value.as_int() % unit;
    const int64_t twice = std::abs(rest) - (unit - std::abs(rest));  // < 0: nearer to zero
    if (twice > 0 || (twice == 0 && quotient % 2 != 0)) quotient += value.as_int() < 0 ? -1 : 1;
    int64_t result = 0;
    if (__builtin_mul_overflow(quotient, unit, &result)) raise("integer overflow in round()");
    return result;
  }
  const double number = value.as_float();
  if (!std::isfinite(number) || precision > 330) return number;
  if (precision < -330) return std::copysign(0.0, number);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(number / unit) * unit;
  }
  return *parse_float(fmt::format("{:.{}f}", number, precision));
}

Value filter_round(Runtime&, Bound& a) {
  const int64_t precision = a.integer(1, 0);
  const std::string method(a.has(2) ? a.text(2)->bytes() : "common");
  if (a[0].is_undefined()) raise_undefined(a[0]);
  if (!a[0].is_number()) raise("type {} doesn't define __round__ method", type_name(a[0]));
  if (method == "common") return round_common(a[0], precision);
  if (method != "ceil" && method != "floor") raise("method must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = a[0].as_float() * unit;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

Value filter_filesizeformat(Runtime&, Bound& a) {
  static constexpr std::array<char, 8> kPrefixes = {'k', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'};
  const auto number = a[0].is_string()   ? parse_float(a[0].as_text().bytes())
                      : a[0].is_number() ? std::optional(a[0].as_float())
                                         : std::nullopt;
  if (!number) raise("filesizeformat wants a number, not '{}'", type_name(a[0]));
  const bool is_binary = a.boolean(1, false);
  const double base = is_binary ? 1024 : 1000;
  if (*number == 1) return "1 Byte";
  if (*number < base) return fmt::format("{} Bytes", float_to_int(*number));
  double unit = base;
  size_t prefix = 0;
  while (prefix + 1 < kPrefixes.size() && *number >= unit * base) {
    unit *= base;
    ++prefix;
  }
  const char letter = is_binary && prefix == 0 ? 'K' : kPrefixes[prefix];
  return fmt::format("{:.1f} {}{}", *number / unit, letter, is_binary ? "iB" : "B");
}

// text

Value filter_format(Runtime& r, Bound& a) {
  std::vector<Value>& arguments = a.raw().positional;
  const TextPtr text = to_text(r, arguments.front());
  if (arguments.size() > 1 && !a.raw().keyword.empty())
    raise("can't handle positional and keyword arguments at the same time");
  if (a.raw().keyword.empty())
    return format_percent(r, *text, tuple_value(r, {arguments.begin() + 1, arguments.end()}));
  Dict named;
  for (const auto& [name, value] : a.raw().keyword) named.set(Value(name), value);
  return format_percent(r, *text, dict_value(r, std::move(named)));
}

Value filter_title(Runtime& r, Bound& a) { return change_case(r, to_plain_text(r, a[0]), Case::kWords); }

Value filter_indent(Runtime& r, Bound& a) {
  const TextPtr text = a.text(0);
  const bool indents_first = a.boolean(2, false), indents_blank = a.boolean(3, false);
  TextBuilder indentation(r.budget());
  if (a.has(1) && a[1].is_string()) {
    indentation.append(a[1].as_text());
  } else {
    indentation.append_repeated(" ", static_cast<size_t>(std::max<int64_t>(a.integer(1, 4), 0)));
  }
  const TextPtr indent = indentation.finish();

  TextBuilder with_end(r.budget());  // splitlines drops one last newline, which Jinja wants to keep
  with_end.append(*text);
  with_end.append("\n");
  const std::vector<Value> lines = split_lines(r, with_end.finish(), false);
  TextBuilder out(r.budget());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    const bool is_indented = i == 0 ? indents_first : indents_blank || lines[i].as_text().size() != 0;
    if (is_indented) out.append(*indent);
    out.append(lines[i].as_text());
  }
  return out.finish(text->is_markup());
}

Value filter_truncate(Runtime& r, Bound& a) {
  const int64_t limit = a.integer(1, 255), leeway = a.has_value(4) ? a.integer(4) : 5;
  const TextPtr end = a.has(3) ? a.text(3) : std::make_shared<const Text>("...");
  const auto end_length = static_cast<int64_t>(end->length());
  if (limit < end_length) raise("expected length >= {}, got {}", end_length, limit);
  if (leeway < 0) raise("expected leeway >= 0, got {}", leeway);
  const int64_t size = filter_length(r, a).as_int();
  if (size <= limit || size - limit <= leeway) return a[0];  // whatever it is
  const TextPtr text = a.text(0);
  size_t cut = text->offset_of(static_cast<size_t>(limit - end_length));
  if (!a.boolean(2, false)) {
    const size_t space = cut == 0 ? std::string_view::npos : text->bytes().rfind(' ', cut - 1);
    if (space != std::string_view::npos) cut = space;
  }
  TextBuilder out(r.budget());
  out.append(*text, 0, cut);
  out.append(*end);
  return out.finish();
}

bool is_word_character(char32_t c) { return c == '_' || is_alnum(c); }

Value filter_wordcount(Runtime& r, Bound& a) {
  const TextPtr text = to_text(r, a[0]);
  int64_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < text->size();) {
    const Utf8Char c = decode_utf8(text->bytes(), i);
    const bool is_word = c.valid && is_word_character(c.code_point);
    if (is_word && !in_word) ++words;
    in_word = is_word;
    i += c.length;
  }
  return words;
}

/// Where Python's textwrap breaks: ASCII white space, so that U+00A0 holds.
bool is_wrap_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Greedy filling of lines, at spaces; words longer than a line are cut if `breaks_long_words`.
void wrap_line(Runtime& r, TextBuilder& out, const TextPtr& line, size_t width, bool breaks_long_words,
               const Text& newline) {
  std::vector<std::pair<size_t, size_t>> chunks;  // alternately words and runs of spaces, as bytes
  for (size_t i = 0; i < line->size();) {
    const size_t begin = i;
    const bool spaces = is_wrap_space(line->bytes()[i]);
    while (i < line->size() && is_wrap_space(line->bytes()[i]) == spaces) i += code_point_size(line->bytes(), i);
    chunks.emplace_back(begin, i);
  }
  const auto length_of = [&](size_t begin, size_t end) { return line->index_of(end) - line->index_of(begin); };
  const auto is_blank = [&](size_t at) { return is_wrap_space(line->bytes()[chunks[at].first]); };
  bool is_first_line = true;
  for (size_t at = 0; at < chunks.size();) {
    r.budget().step(line->size() / 16 + 1);
    if (is_blank(at) && !is_first_line) {
      ++at;
      continue;
    }
    const size_t begin = chunks[at].first;
    size_t end = begin, used = 0;
    while (at < chunks.size() && used + length_of(chunks[at].first, chunks[at].second) <= width) {
      used += length_of(chunks[at].first, chunks[at].second);
      end = chunks[at++].second;
    }
    if (at < chunks.size() && length_of(chunks[at].first, chunks[at].second) > width) {
      if (breaks_long_words) {
        const size_t cut = line->offset_of(line->index_of(chunks[at].first) + std::max<size_t>(width - used, 1));
        end = chunks[at].first = cut;
      } else if (used == 0) {
        end = chunks[at++].second;
      }
    }
    const size_t shown = begin + trim_right(line->bytes().substr(begin, end - begin)).size();
    if (shown == begin) continue;
    if (!is_first_line) out.append(newline);
    out.append(*line, begin, shown);
    is_first_line = false;
  }
}

Value filter_wordwrap(Runtime& r, Bound& a) {
  const TextPtr text = a.text(0);
  const int64_t width = a.integer(1, 79);
  if (width <= 0) raise("invalid width {} (must be > 0)", width);
  const Text newline(a.has_value(3) ? std::string(a.text(3)->bytes()) : "\n");
  TextBuilder out(r.budget());
  bool is_first = true;
  for (const Value& line : split_lines(r, text, false)) {
    if (!is_first) out.append(newline);
    is_first = false;
    wrap_line(r, out, line.text_ptr(), static_cast<size_t>(width), a.boolean(2, true), newline);
  }
  return out.finish();
}

// HTML and URLs

Value filter_safe(Runtime& r, Bound& a) {
  TextBuilder out(r.budget());
  append_str(r, out, a[0]);
  return out.finish(true);
}
Value filter_escape(Runtime& r, Bound& a) {
  if (a[0].is_string() && a[0].as_text().is_markup()) return a[0];
  TextBuilder out(r.budget());
  append_escaped(out, *to_text(r, a[0]));
  return out.finish(true);
}
Value filter_forceescape(Runtime& r, Bound& a) {
  TextBuilder out(r.budget());
  append_escaped(out, *to_text(r, a[0]));
  return out.finish(true);
}

Value filter_striptags(Runtime& r, Bound& a) {
  const TextPtr text = to_text(r, a[0]);
  TextBuilder untagged(r.budget());
  size_t at = 0;
  for (size_t open = text->bytes().find('<'); open != std::string_view::npos; open = text->bytes().find('<', at)) {
    const bool is_comment = text->bytes().substr(open).starts_with("<!--");
    const size_t close = is_comment ? find_bytes(text->bytes(), "-->", open + 4) : text->bytes().find('>', open);
    if (close == std::string_view::npos) break;
    untagged.append(*text, at, open);
    at = close + (is_comment ? 3 : 1);
  }
  untagged.append(*text, at, text->size());
  Arguments words{{Value(" "), list_value(r, split(r, untagged.finish(), nullptr, -1))}, {}};
  TextPtr result = call_native(r, *find_method(Kind::kString, "join"), words).text_ptr();
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"},  {"&gt;", ">"},        {"&quot;", "\""}, {"&#34;", "\""},
      {"&#39;", "'"}, {"&nbsp;", "\u00A0"}, {"&amp;", "&"}};
  for (const auto& [entity, meaning] : kEntities)
    result = replace(r, result, Text(std::string(entity)), Text(std::string(meaning)), -1);
  return result;
}

Value filter_xmlattr(Runtime& r, Bound& a) {
  if (!a[0].is(Kind::kDict)) raise("xmlattr wants a mapping, not '{}'", type_name(a[0]));
  TextBuilder out(r.budget());
  for (const auto& [key, value] : a[0].as_dict().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    const TextPtr name = to_text(r, key);
    if (name->bytes().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      raise("Invalid character in attribute name: {}", quote_string(name->bytes()));
    }
    if (out.size() != 0 || a.boolean(1, true)) out.append(" ");
    append_escaped(out, *name);
    out.append("=\"");
    append_escaped(out, *to_text(r, value));
    out.append("\"");
  }
  return out.finish();
}

void append_url_quoted(TextBuilder& out, const Text& text, bool is_query) {
  static constexpr std::string_view kSafe = "_.-~";
  MarkCursor marks(text);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    const bool is_safe =
        (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || kSafe.find(c) != std::string_view::npos;
    if (is_safe || (c == '/' && !is_query)) {
      out.append(std::string_view(&c, 1), marks.is_input(i));
    } else {
      out.append(c == ' ' && is_query ? "+" : fmt::format("%{:02X}", static_cast<unsigned char>(c)), marks.is_input(i));
    }
  }
}

Value filter_urlencode(Runtime& r, Bound& a) {
  TextBuilder out(r.budget());
  if (a[0].is_string() || !is_iterable(a[0])) {
    append_url_quoted(out, *to_text(r, a[0]), false);
    return out.finish();
  }
  std::vector<Value> pairs;
  if (a[0].is(Kind::kDict)) {
    for (const auto& [key, value] : a[0].as_dict().entries()) pairs.push_back(tuple_value(r, {key, value}));
  } else {
    pairs = iterate(r, a[0]);
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::vector<Value> pair = iterate(r, pairs[i]);
    if (pair.size() != 2) raise("urlencode wants pairs of key and value");
    if (i > 0) out.append("&");
    append_url_quoted(out, *to_text(r, pair[0]), true);
    out.append("=");
    append_url_quoted(out, *to_text(r, pair[1]), true);
  }
  return out.finish();
}

// serialisation

Value filter_tojson(Runtime& r, Bound& a) {
  JsonStyle style;
  style.ensure_ascii = a.boolean(1, false);
  style.sort_keys = a.boolean(4, false);
  if (a.has_value(2)) {
    if (a[2].is_string()) {
      style.indent = std::string(a[2].as_text().bytes());
    } else {
      const int64_t width = a.integer(2);
      if (width > 1000) raise("tojson: indent is too large");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (a.has_value(3)) {
    const std::vector<Value> separators = iterate(r, a[3]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      raise("tojson: separators must be a pair of strings");
    style.item_separator = separators[0].as_text().bytes();
    style.key_separator = separators[1].as_text().bytes();
  }
  TextBuilder out(r.budget());
  append_json(r, out, a[0], style);
  return out.finish();
}

/// Dicts sorted by key at all levels, as pprint does.
Value sorted_dicts(Runtime& r, const Value& value) {
  const DepthGuard guard(r.budget());
  if (value.is_sequence()) {
    std::vector<Value> items;
    for (const Value& item : value.items()) items.push_back(sorted_dicts(r, item));
    return value.is(Kind::kList) ? list_value(r, std::move(items)) : tuple_value(r, std::move(items));
  }
  if (!value.is(Kind::kDict)) return value;
  std::vector<Dict::Entry> entries(value.as_dict().entries().begin(), value.as_dict().entries().end());
  stable_sort(entries, [&](const Dict::Entry& x, const Dict::Entry& y) {
    const bool is_ordered = x.key.kind() == y.key.kind() || (x.key.is_number() && y.key.is_number());
    return is_ordered ? compare(r, x.key, y.key, "<").value_or(0) < 0 : type_name(x.key) < type_name(y.key);
  });
  Dict dict;
  for (const auto& [key, item] : entries) dict.set(key, sorted_dicts(r, item));
  return dict_value(r, std::move(dict));
}

Value filter_pprint(Runtime& r, Bound& a) {
  constexpr size_t kLine = 80;
  TextBuilder out(r.budget());
  append_repr(r, out, sorted_dicts(r, a[0]));
  if (out.size() > kLine) raise("pprint of values longer than a line is not supported");
  return out.finish();
}

constexpr Signature kFilters[] = {
    {"abs", filter_abs, 1, {"value"}},
    {"attr", filter_attr, 2, {"obj", "name"}},
    {"capitalize", filter_case<Case::kCapitalize>, 1, {"s"}},
    {"center", filter_center, 1, {"value", "width"}},
    {"count", filter_length, 1, {"obj"}},
    {"d", filter_default, 1, {"value", "default_value", "boolean"}},
    {"default", filter_default, 1, {"value", "default_value", "boolean"}},
    {"e", filter_escape, 1, {"s"}},
    {"escape", filter_escape, 1, {"s"}},
    {"filesizeformat", filter_filesizeformat, 1, {"value", "binary"}},
    {"float", filter_float, 1, {"value", "default"}},
    {"forceescape", filter_forceescape, 1, {"value"}},
    {"format", filter_format, Signature::kVariadic, {}},
    {"indent", filter_indent, 1, {"s", "width", "first", "blank"}},
    {"int", filter_int, 1, {"value", "default", "base"}},
    {"length", filter_length, 1, {"obj"}},
    {"lower", filter_case<Case::kLower>, 1, {"s"}},
    {"pprint", filter_pprint, 1, {"value"}},
    {"replace", filter_replace, 3, {"s", "old", "new", "count"}},
    {"round", filter_round, 1, {"value", "precision", "method"}},
    {"safe", filter_safe, 1, {"value"}},
    {"string", filter_string, 1, {"s"}},
    {"striptags", filter_striptags, 1, {"value"}},
    {"title", filter_title, 1, {"s"}},
    {"tojson", filter_tojson, 1, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", filter_trim, 1, {"value", "chars"}},
    {"truncate", filter_truncate, 1, {"s", "length", "killwords", "end", "leeway"}},
    {"upper", filter_case<Case::kUpper>, 1, {"s"}},
    {"urlencode", filter_urlencode, 1, {"value"}},
    {"wordcount", filter_wordcount, 1, {"s"}},
    {"wordwrap", filter_wordwrap, 1, {"s", "width", "break_long_words", "wrapstring", "break_on_hyphens"}},
    {"xmlattr", filter_xmlattr, 1, {"d", "autospace"}},
};

}  // namespace

std::span<const Signature> value_filters() { return kFilters; }

}  // namespace honeycrisp::text::jinja
