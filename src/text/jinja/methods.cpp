// Methods of strings, lists, dicts and the objects of a render. Parameter 0 is the object itself.
#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/string_ops.h"
#include "text/jinja/unicode.h"

#include <algorithm>
#include <array>

namespace honeycrisp::text::jinja {
namespace {

using Bound = BoundArguments;

TextPtr self(const Bound& a) { return a[0].text_ptr(); }
/// An optional string parameter: null where it is absent or none.
const Text* optional_text(const Bound& a, size_t i) {
  if (!a.has_value(i)) return nullptr;
  return a.text(i).get();  // the argument outlives the call
}

template <Side side>
Value str_strip(Runtime& r, Bound& a) {
  return strip(r, self(a), side, optional_text(a, 1));
}
template <Case mode>
Value str_case(Runtime& r, Bound& a) {
  return change_case(r, self(a), mode);
}
Value str_split(Runtime& r, Bound& a) {
  return list_value(r, split(r, self(a), optional_text(a, 1), a.integer(2, -1)));
}
Value str_rsplit(Runtime& r, Bound& a) {
  return list_value(r, split_from_right(r, self(a), optional_text(a, 1), a.integer(2, -1)));
}
Value str_splitlines(Runtime& r, Bound& a) { return list_value(r, split_lines(r, self(a), a.boolean(1, false))); }
Value str_replace(Runtime& r, Bound& a) { return replace(r, self(a), *a.text(1), *a.text(2), a.integer(3, -1)); }

/// The part of the string that start and end select, as bytes; nullopt if start lies behind it.
std::optional<std::pair<size_t, size_t>> window(const Bound& a, size_t first_parameter) {
  const Text& text = *self(a);
  const auto size = static_cast<int64_t>(text.length());
  const auto bound = [&](size_t i, int64_t fallback) {
    if (!a.has_value(i)) return fallback;
    const int64_t at = a.integer(i);
    return at < 0 ? std::max<int64_t>(at + size, 0) : at;
  };
  const int64_t start = bound(first_parameter, 0), end = std::min(bound(first_parameter + 1, size), size);
  if (start > end) return std::nullopt;
  return std::pair(text.offset_of(static_cast<size_t>(start)), text.offset_of(static_cast<size_t>(end)));
}

template <bool at_start>
Value str_has_affix(Runtime&, Bound& a) {
  const auto range = window(a, 2);
  if (!range) return false;
  const std::string_view text = self(a)->bytes().substr(range->first, range->second - range->first);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      raise("{} first arg must be str or a tuple of str, not {}", a.signature().name, type_name(affix));
    return at_start ? text.starts_with(affix.as_text().bytes()) : text.ends_with(affix.as_text().bytes());
  };
  return a[1].is(Kind::kTuple) ? std::ranges::any_of(a[1].items(), matches) : matches(a[1]);
}

template <bool from_right>
int64_t find_index(Runtime& r, const Bound& a) {
  const auto range = window(a, 2);
  const TextPtr text = self(a), needle = a.text(1);
  if (!range) return -1;
  const std::string_view bytes = text->bytes().substr(0, range->second);
  r.budget().step(bytes.size() / 16 * (from_right ? needle->size() : 1) + 1);
  const size_t at = from_right ? bytes.rfind(needle->bytes()) : find_bytes(bytes, needle->bytes(), range->first);
  return at == std::string_view::npos || at < range->first ? -1 : static_cast<int64_t>(text->index_of(at));
}
template <bool from_right>
Value str_find(Runtime& r, Bound& a) {
  return find_index<from_right>(r, a);
}
template <bool from_right>
Value str_index(Runtime& r, Bound& a) {
  const int64_t at = find_index<from_right>(r, a);
  if (at < 0) raise("substring not found");
  return at;
}

Value str_count(Runtime& r, Bound& a) {
  const auto range = window(a, 2);
  const TextPtr text = self(a), needle = a.text(1);
  if (!range) return 0;
  r.budget().step(text->size() / 16 + 1);
  if (needle->size() == 0)
    return static_cast<int64_t>(text->index_of(range->second) - text->index_of(range->first)) + 1;
  const std::string_view bytes = text->bytes().substr(0, range->second);
  int64_t count = 0;
  for (size_t at = find_bytes(bytes, needle->bytes(), range->first); at != std::string_view::npos; ++count) {
    at = find_bytes(bytes, needle->bytes(), at + needle->size());
  }
  return count;
}

Value str_join(Runtime& r, Bound& a) {
  const TextPtr separator = self(a);
  const std::vector<Value> items = iterate(r, a[1]);
  TextBuilder out(r.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(*separator);
    if (items[i].is_string() && (!separator->is_markup() || items[i].as_text().is_markup())) {
      out.append(items[i].as_text());
    } else if (separator->is_markup()) {
      Arguments arguments{{items[i]}, {}};
      out.append(r.call_filter("escape", arguments).as_text());
    } else {
      raise("sequence item {}: expected str instance, {} found", i, type_name(items[i]));
    }
  }
  return out.finish(separator->is_markup());
}

Value str_format(Runtime& r, Bound& a) {
  const TextPtr text = a.raw().positional.front().text_ptr();
  Arguments arguments{{a.raw().positional.begin() + 1, a.raw().positional.end()}, a.raw().keyword};
  return format_braces(r, *text, arguments);
}
Value str_format_map(Runtime& r, Bound& a) {
  if (!a[1].is(Kind::kDict)) raise("format_map() wants a dict, not {}", type_name(a[1]));
  Arguments arguments;
  for (const auto& [key, value] : a[1].as_dict().entries()) {
    if (key.is_string()) arguments.keyword.emplace_back(key.as_text().bytes(), value);
  }
  return format_braces(r, *self(a), arguments);
}

template <Align align>
Value str_pad(Runtime& r, Bound& a) {
  static const auto kSpace = std::make_shared<const Text>(" ");
  return pad(r, self(a), a.integer(1), align, a.has(2) ? *a.text(2) : *kSpace);
}
Value str_zfill(Runtime& r, Bound& a) {
  const TextPtr text = self(a);
  const int64_t missing = a.integer(1) - static_cast<int64_t>(text->length());
  if (missing <= 0) return text;
  const size_t sign = text->bytes().starts_with('-') || text->bytes().starts_with('+') ? 1 : 0;
  TextBuilder out(r.budget());
  out.append(*text, 0, sign);
  out.append_repeated("0", static_cast<size_t>(missing));
  out.append(*text, sign, text->size());
  return out.finish(text->is_markup());
}

/// All characters satisfy the predicate, and there is one.
template <bool (*predicate)(char32_t)>
Value str_all(Runtime& r, Bound& a) {
  const std::string_view bytes = a[0].as_text().bytes();
  r.budget().step(bytes.size() / 16 + 1);
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, i);
    if (!c.valid || !predicate(c.code_point)) return false;
    i += c.length;
  }
  return !bytes.empty();
}
bool is_ascii_character(char32_t c) { return c < 0x80; }
bool is_identifier_character(char32_t c) { return c == '_' || is_alnum(c); }

Value str_isidentifier(Runtime& r, Bound& a) {
  const std::string_view bytes = a[0].as_text().bytes();
  return is_true(str_all<is_identifier_character>(r, a)) && !is_numeric(decode_utf8(bytes, 0).code_point);
}
template <bool upper>
Value str_is_case(Runtime& r, Bound& a) {
  const std::string_view bytes = a[0].as_text().bytes();
  r.budget().step(bytes.size() / 16 + 1);
  bool has_cased = false;
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, i);
    if ((upper ? is_lower(c.code_point) : is_upper(c.code_point)) || is_title(c.code_point)) return false;
    has_cased |= upper ? is_upper(c.code_point) : is_lower(c.code_point);
    i += c.length;
  }
  return has_cased;
}
Value str_istitle(Runtime& r, Bound& a) {
  const std::string_view bytes = a[0].as_text().bytes();
  r.budget().step(bytes.size() / 16 + 1);
  bool has_cased = false, follows_cased = false;
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, i);
    const bool starts = is_upper(c.code_point) || is_title(c.code_point), continues = is_lower(c.code_point);
    if (starts ? follows_cased : continues && !follows_cased) return false;
    follows_cased = starts || continues;
    has_cased |= follows_cased;
    i += c.length;
  }
  return has_cased;
}

Value str_removeprefix(Runtime& r, Bound& a) {
  const TextPtr text = self(a), prefix = a.text(1);
  return slice_text(r.budget(), text, text->bytes().starts_with(prefix->bytes()) ? prefix->size() : 0, text->size());
}
Value str_removesuffix(Runtime& r, Bound& a) {
  const TextPtr text = self(a), suffix = a.text(1);
  return slice_text(r.budget(), text, 0,
                    text->size() - (text->bytes().ends_with(suffix->bytes()) ? suffix->size() : 0));
}

template <bool from_right>
Value str_partition(Runtime& r, Bound& a) {
  const TextPtr text = self(a), separator = a.text(1);
  if (separator->size() == 0) raise("empty separator");
  r.budget().step(text->size() / 16 * (from_right ? separator->size() : 1) + 1);
  const size_t at =
      from_right ? text->bytes().rfind(separator->bytes()) : find_bytes(text->bytes(), separator->bytes(), 0);
  if (at == std::string_view::npos) {
    return from_right ? tuple_value(r, {Value(""), Value(""), Value(text)})
                      : tuple_value(r, {Value(text), Value(""), Value("")});
  }
  return tuple_value(r, {slice_text(r.budget(), text, 0, at), slice_text(r.budget(), text, at, at + separator->size()),
                         slice_text(r.budget(), text, at + separator->size(), text->size())});
}

Value str_expandtabs(Runtime& r, Bound& a) {
  const TextPtr text = self(a);
  const int64_t tab = a.integer(1, 8);
  TextBuilder out(r.budget());
  int64_t column = 0;
  for (size_t i = 0; i < text->size();) {
    const size_t size = code_point_size(text->bytes(), i);
    const char c = text->bytes()[i];
    if (c == '\t') {
      const int64_t spaces = tab > 0 ? tab - column % tab : 0;
      out.append_repeated(" ", static_cast<size_t>(spaces));
      column += spaces;
    } else {
      out.append(*text, i, i + size);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    i += size;
  }
  return out.finish(text->is_markup());
}

template <bool counts>
Value sequence_search(Runtime& r, Bound& a) {
  const std::vector<Value>& items = a[0].items();
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!equals(r, items[i], a[1])) continue;
    if (!counts) return static_cast<int64_t>(i);
    ++count;
  }
  if (!counts) raise("value is not in {}", type_name(a[0]));
  return count;
}
Value return_self(Runtime&, Bound& a) { return a[0]; }  // values do not change, so a copy is the same

Value dict_get(Runtime&, Bound& a) {
  if (!is_hashable(a[1])) raise("unhashable type: '{}'", type_name(a[1]));
  const Value* value = a[0].as_dict().find(a[1]);
  return value != nullptr ? *value : a.get(2, Value());
}
template <DictView::Part part>
Value dict_view(Runtime&, Bound& a) {
  return Value::object(Kind::kDictView, std::make_shared<DictView>(DictView{part, a[0]}));
}

Value loop_cycle(Runtime&, Bound& a) {
  const std::vector<Value>& arguments = a.raw().positional;
  if (arguments.size() < 2) raise("no items for cycling given");
  return arguments[1 + arguments.front().as<Loop>().index % (arguments.size() - 1)];
}
Value loop_changed(Runtime& r, Bound& a) {
  Loop& loop = a.raw().positional.front().as<Loop>();
  std::vector<Value> now(a.raw().positional.begin() + 1, a.raw().positional.end());
  const bool is_same =
      loop.has_last_changed &&
      std::ranges::equal(loop.last_changed, now, [&](const Value& x, const Value& y) { return equals(r, x, y); });
  if (!loop.has_last_changed) r.keep_loop(a.raw().positional.front());
  loop.last_changed = std::move(now);
  loop.has_last_changed = true;
  return !is_same;
}
Value cycler_next(Runtime&, Bound& a) {
  Cycler& cycler = a[0].as<Cycler>();
  Value value = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return value;
}
Value cycler_reset(Runtime&, Bound& a) {
  a[0].as<Cycler>().position = 0;
  return {};
}

constexpr int kVariadic = Signature::kVariadic;
constexpr Signature kStringMethods[] = {
    {"strip", str_strip<Side::kBoth>, 1, {"self", "chars"}},
    {"lstrip", str_strip<Side::kLeft>, 1, {"self", "chars"}},
    {"rstrip", str_strip<Side::kRight>, 1, {"self", "chars"}},
    {"split", str_split, 1, {"self", "sep", "maxsplit"}},
    {"rsplit", str_rsplit, 1, {"self", "sep", "maxsplit"}},
    {"splitlines", str_splitlines, 1, {"self", "keepends"}},
    {"startswith", str_has_affix<true>, 2, {"self", "prefix", "start", "end"}},
    {"endswith", str_has_affix<false>, 2, {"self", "suffix", "start", "end"}},
    {"replace", str_replace, 3, {"self", "old", "new", "count"}},
    {"find", str_find<false>, 2, {"self", "sub", "start", "end"}},
    {"rfind", str_find<true>, 2, {"self", "sub", "start", "end"}},
    {"index", str_index<false>, 2, {"self", "sub", "start", "end"}},
    {"rindex", str_index<true>, 2, {"self", "sub", "start", "end"}},
    {"count", str_count, 2, {"self", "sub", "start", "end"}},
    {"join", str_join, 2, {"self", "iterable"}},
    {"format", str_format, kVariadic, {}},
    {"format_map", str_format_map, 2, {"self", "mapping"}},
    {"upper", str_case<Case::kUpper>, 1, {"self"}},
    {"lower", str_case<Case::kLower>, 1, {"self"}},
    {"title", str_case<Case::kTitle>, 1, {"self"}},
    {"capitalize", str_case<Case::kCapitalize>, 1, {"self"}},
    {"swapcase", str_case<Case::kSwap>, 1, {"self"}},
    {"casefold", str_case<Case::kLower>, 1, {"self"}},
    {"ljust", str_pad<Align::kLeft>, 2, {"self", "width", "fillchar"}},
    {"rjust", str_pad<Align::kRight>, 2, {"self", "width", "fillchar"}},
    {"center", str_pad<Align::kCenter>, 2, {"self", "width", "fillchar"}},
    {"zfill", str_zfill, 2, {"self", "width"}},
    {"isalpha", str_all<is_alpha>, 1, {"self"}},
    {"isalnum", str_all<is_alnum>, 1, {"self"}},
    {"isascii", str_all<is_ascii_character>, 1, {"self"}},
    {"isdecimal", str_all<is_decimal>, 1, {"self"}},
    {"isdigit", str_all<is_digit>, 1, {"self"}},
    {"isidentifier", str_isidentifier, 1, {"self"}},
    {"isnumeric", str_all<is_numeric>, 1, {"self"}},
    {"isprintable", str_all<is_printable>, 1, {"self"}},
    {"isspace", str_all<is_space>, 1, {"self"}},
    {"isupper", str_is_case<true>, 1, {"self"}},
    {"islower", str_is_case<false>, 1, {"self"}},
    {"istitle", str_istitle, 1, {"self"}},
    {"removeprefix", str_removeprefix, 2, {"self", "prefix"}},
    {"removesuffix", str_removesuffix, 2, {"self", "suffix"}},
    {"partition", str_partition<false>, 2, {"self", "sep"}},
    {"rpartition", str_partition<true>, 2, {"self", "sep"}},
    {"expandtabs", str_expandtabs, 1, {"self", "tabsize"}},
};
constexpr Signature kListMethods[] = {
    {"index", sequence_search<false>, 2, {"self", "value"}},
    {"count", sequence_search<true>, 2, {"self", "value"}},
    {"copy", return_self, 1, {"self"}},
};
constexpr Signature kDictMethods[] = {
    {"get", dict_get, 2, {"self", "key", "default"}},
    {"items", dict_view<DictView::Part::kItems>, 1, {"self"}},
    {"keys", dict_view<DictView::Part::kKeys>, 1, {"self"}},
    {"values", dict_view<DictView::Part::kValues>, 1, {"self"}},
    {"copy", return_self, 1, {"self"}},
};
constexpr Signature kLoopMethods[] = {
    {"cycle", loop_cycle, kVariadic, {}},
    {"changed", loop_changed, kVariadic, {}},
};
constexpr Signature kCyclerMethods[] = {
    {"next", cycler_next, 1, {"self"}},
    {"reset", cycler_reset, 1, {"self"}},
};

}  // namespace

const Signature* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString: return find_signature(kStringMethods, name);
    case Kind::kList: return find_signature(kListMethods, name);
    case Kind::kTuple: return find_signature(std::span(kListMethods).first(2), name);  // no copy()
    case Kind::kDict: return find_signature(kDictMethods, name);
    case Kind::kLoop: return find_signature(kLoopMethods, name);
    case Kind::kCycler: return find_signature(kCyclerMethods, name);
    default: return nullptr;
  }
}

}  // namespace honeycrisp::text::jinja
