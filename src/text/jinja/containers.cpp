// Lengths, iteration, subscripts and the making of containers: the second half of operators.h.
#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/string_ops.h"
#include "text/jinja/unicode.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace honeycrisp::text::jinja {
namespace {

Value dict_view_item(const DictView& view, const Dict::Entry& entry) {
  switch (view.part) {
    case DictView::Part::kKeys: return entry.key;
    case DictView::Part::kValues: return entry.value;
    case DictView::Part::kItems: break;
  }
  return Value::tuple({entry.key, entry.value});
}

/// The range of a slice, clamped as Python's slice.indices does; step is not 0.
struct SliceRange {
  int64_t start, step;
  size_t count;
};

int64_t slice_bound(const Value& value, int64_t fallback) {
  if (value.is_none()) return fallback;
  if (value.is_undefined()) raise("slice indices must be integers or None or have an __index__ method");
  if (!value.is_integral()) raise("slice indices must be integers or None or have an __index__ method");
  return value.as_int();
}

SliceRange slice_range(int64_t size, const Value& start_value, const Value& stop_value, const Value& step_value) {
  const int64_t step = std::max(slice_bound(step_value, 1), -INT64_MAX);
  if (step == 0) raise("slice step cannot be zero");
  const auto clamp = [&](int64_t bound) {
    if (bound < 0) bound = std::max(bound + size, step < 0 ? int64_t{-1} : int64_t{0});
    return std::min(bound, step < 0 ? size - 1 : size);
  };
  const int64_t start = start_value.is_none() ? (step < 0 ? size - 1 : 0) : clamp(slice_bound(start_value, 0));
  const int64_t stop = stop_value.is_none() ? (step < 0 ? -1 : size) : clamp(slice_bound(stop_value, 0));
  uint64_t count = 0;
  if (step > 0 && start < stop) count = (static_cast<uint64_t>(stop - start) - 1) / static_cast<uint64_t>(step) + 1;
  if (step < 0 && start > stop) count = (static_cast<uint64_t>(start - stop) - 1) / static_cast<uint64_t>(-step) + 1;
  return {start, step, static_cast<size_t>(count)};
}

Value slice_string(Runtime& runtime, const TextPtr& text, const SliceRange& range) {
  runtime.budget().step(text->size() / 16 + 1);
  if (range.count == 0) return slice_text(runtime.budget(), text, 0, 0);
  if (range.step == 1) {
    const size_t begin = text->offset_of(static_cast<size_t>(range.start));
    const size_t end = text->offset_of(static_cast<size_t>(range.start) + range.count);
    return slice_text(runtime.budget(), text, begin, end);
  }
  std::vector<size_t> offsets;
  if (!text->is_ascii()) {
    runtime.budget().elements(text->length() / 4);
    offsets.reserve(text->length());
    for (size_t i = 0; i < text->size(); i += code_point_size(text->bytes(), i)) offsets.push_back(i);
  }
  TextBuilder out(runtime.budget());
  for (size_t i = 0; i < range.count; ++i) {
    const auto index = static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step);
    const size_t begin = offsets.empty() ? index : offsets[index];
    out.append(*text, begin, begin + code_point_size(text->bytes(), begin));
  }
  return out.finish(text->is_markup());
}

/// Index into a sequence of `size`, negative from the end; nullopt if out of range.
std::optional<size_t> resolve_index(const Value& index, size_t size) {
  if (!index.is_integral()) return std::nullopt;
  int64_t i = index.as_int();
  if (i < 0) i += static_cast<int64_t>(size);
  if (i < 0 || i >= static_cast<int64_t>(size)) return std::nullopt;
  return static_cast<size_t>(i);
}

/// object[index] as Python's __getitem__; nullopt where it raises TypeError or LookupError.
std::optional<Value> find_item(Runtime& runtime, const Value& object, const Value& index) {
  switch (object.kind()) {
    case Kind::kDict: {
      if (!is_hashable(index)) return std::nullopt;
      const Value* value = object.as_dict().find(index);
      return value != nullptr ? std::optional(*value) : std::nullopt;
    }
    case Kind::kList:
    case Kind::kTuple: {
      const auto i = resolve_index(index, object.items().size());
      return i ? std::optional(object.items()[*i]) : std::nullopt;
    }
    case Kind::kString: {
      const auto i = resolve_index(index, object.as_text().length());
      if (!i) return std::nullopt;
      runtime.budget().step(object.as_text().size() / 64);
      const size_t begin = object.as_text().offset_of(*i);
      const size_t size = code_point_size(object.as_text().bytes(), begin);
      return Value(slice_text(runtime.budget(), object.text_ptr(), begin, begin + size));
    }
    case Kind::kRange: {
      const auto i = resolve_index(index, object.as<Range>().size());
      return i ? std::optional(Value(object.as<Range>().at(*i))) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

Value make_method(const Signature& signature, const Value& self) {
  return Value::object(Kind::kFunction, std::make_shared<Function>(Function{&signature, self, true}));
}

std::optional<Value> loop_attribute(const Loop& loop, std::string_view name) {
  const auto size = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index == size - 1;
  if (name == "length") return size;
  if (name == "depth") return static_cast<int64_t>(loop.depth) + 1;
  if (name == "depth0") return static_cast<int64_t>(loop.depth);
  if (name == "previtem") return index == 0 ? make_undefined("there is no previous item") : loop.items[loop.index - 1];
  if (name == "nextitem")
    return index == size - 1 ? make_undefined("there is no next item") : loop.items[loop.index + 1];
  return std::nullopt;
}

Value forbidden(const Value& object, std::string_view name) {
  auto reason = std::make_shared<UndefinedReason>();
  reason->hint = fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object));
  reason->is_forbidden = true;
  return Value::object(Kind::kUndefined, std::move(reason));
}

/// What the immutable sandbox hides: methods that change the object, and everything with two underscores.
bool is_forbidden(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear", "pop",    "reverse",
                                                                   "insert", "sort",  "extend", "remove"};
  static constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::array<std::string_view, 12> kObjectAttributes = {
      "__class__", "__doc__", "__init__", "__dict__", "__eq__",           "__ne__",
      "__hash__",  "__str__", "__repr__", "__len__",  "__getattribute__", "__new__"};
  if (object.is(Kind::kList) && std::ranges::find(kListChanges, name) != kListChanges.end()) return true;
  if (object.is(Kind::kDict) && std::ranges::find(kDictChanges, name) != kDictChanges.end()) return true;
  return name.starts_with("__") && !object.is(Kind::kNamespace) &&
         std::ranges::find(kObjectAttributes, name) != kObjectAttributes.end();
}

}  // namespace

std::optional<Value> find_attribute(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kUndefined: raise_undefined(object);
    case Kind::kNamespace: {
      const Value* value = object.as<Namespace>().find(name);
      return value != nullptr ? std::optional(*value) : std::nullopt;
    }
    case Kind::kLoop:
      if (auto value = loop_attribute(object.as<Loop>(), name)) return value;
      break;
    case Kind::kTuple:  // groupby gives named tuples; a plain pair answers to the names too, which no template minds
      if (object.items().size() == 2 && name == "grouper") return object.items()[0];
      if (object.items().size() == 2 && name == "list") return object.items()[1];
      break;
    case Kind::kCycler:
      if (name == "current") return object.as<Cycler>().items[object.as<Cycler>().position];
      break;
    case Kind::kMacro:
      if (name == "name") return macro_name(object);
      break;
    default: break;
  }
  if (const Signature* method = find_method(object.kind(), name)) return make_method(*method, object);
  if (is_forbidden(object, name)) return forbidden(object, name);
  return std::nullopt;
}

uint64_t Range::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  return (distance - 1) / stride + 1;
}

std::optional<int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return static_cast<int64_t>(value.as_text().length());
    case Kind::kList:
    case Kind::kTuple: return static_cast<int64_t>(value.items().size());
    case Kind::kDict: return static_cast<int64_t>(value.as_dict().size());
    case Kind::kDictView: return static_cast<int64_t>(value.as<DictView>().dict.as_dict().size());
    case Kind::kRange: return static_cast<int64_t>(value.as<Range>().size());
    case Kind::kLoop: return static_cast<int64_t>(value.as<Loop>().items.size());
    default: return std::nullopt;
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kIterator: return true;
    default: return false;
  }
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  runtime.budget().elements(static_cast<uint64_t>(length(value).value_or(0)));
  switch (value.kind()) {
    case Kind::kUndefined: return items;
    case Kind::kList:
    case Kind::kTuple: return value.items();
    case Kind::kString: {
      const Text& text = value.as_text();
      items.reserve(text.length());
      for (size_t i = 0; i < text.size();) {
        const size_t size = code_point_size(text.bytes(), i);
        TextBuilder character(runtime.budget());  // plain, also of markup
        character.append(text, i, i + size);
        items.emplace_back(character.finish());
        i += size;
      }
      return items;
    }
    case Kind::kDict:
      for (const auto& entry : value.as_dict().entries()) items.push_back(entry.key);
      return items;
    case Kind::kDictView: {
      const DictView& view = value.as<DictView>();
      for (const auto& entry : view.dict.as_dict().entries()) items.push_back(dict_view_item(view, entry));
      return items;
    }
    case Kind::kRange: {
      const Range& range = value.as<Range>();
      for (uint64_t i = 0; i < range.size(); ++i) items.emplace_back(range.at(i));
      return items;
    }
    case Kind::kIterator: {
      Iterator& iterator = value.as<Iterator>();
      items.assign(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      return items;
    }
    default: raise("'{}' object is not iterable", type_name(value));
  }
}

std::optional<Value> first_of(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kIterator)) {
    Iterator& iterator = value.as<Iterator>();
    if (iterator.next == iterator.items.size()) return std::nullopt;
    return iterator.items[iterator.next++];
  }
  if (!is_iterable(value)) raise("'{}' object is not iterable", type_name(value));
  if (length(value).value_or(0) == 0) return std::nullopt;
  if (value.is(Kind::kDict)) return value.as_dict().entries().front().key;
  if (value.is(Kind::kDictView))
    return dict_view_item(value.as<DictView>(), value.as<DictView>().dict.as_dict().entries().front());
  return find_item(runtime, value, Value(0));
}

Value get_attribute(Runtime& runtime, const Value& object, const Value& name) {
  if (auto value = find_attribute(object, name.as_text().bytes())) return *value;
  if (auto value = find_item(runtime, object, name)) return *value;
  return make_undefined_member(object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& index) {
  if (object.is_undefined()) raise_undefined(object);
  if (auto value = find_item(runtime, object, index)) return *value;
  if (index.is_string()) {
    if (auto value = find_attribute(object, index.as_text().bytes())) return *value;
  }
  return make_undefined_member(object, index);
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) raise_undefined(object);
  if (object.is(Kind::kDict)) raise("unhashable type: 'slice'");
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) {
    raise("'{}' object is not subscriptable", type_name(object));
  }
  const SliceRange range = slice_range(*length(object), start, stop, step);
  if (object.is_string()) return slice_string(runtime, object.text_ptr(), range);
  if (object.is(Kind::kRange)) {
    const Range& source = object.as<Range>();
    int64_t first = 0, stride = 0, stop_at = 0;
    const bool overflows = __builtin_mul_overflow(range.start, source.step, &first) ||
                           __builtin_add_overflow(first, source.start, &first) ||
                           __builtin_mul_overflow(range.step, source.step, &stride) ||
                           __builtin_mul_overflow(static_cast<int64_t>(range.count), stride, &stop_at) ||
                           __builtin_add_overflow(stop_at, first, &stop_at);
    if (overflows) raise("integer overflow in the slice of a range");
    return Value::object(Kind::kRange, std::make_shared<Range>(Range{first, stop_at, stride}));
  }
  runtime.budget().elements(range.count);
  std::vector<Value> items;
  items.reserve(range.count);
  for (size_t i = 0; i < range.count; ++i) {
    items.push_back(object.items()[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)]);
  }
  return object.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

std::string UndefinedReason::message() const {
  if (!hint.empty()) return hint;
  const std::string shown = name.is_string() ? quote_string(name.as_text().bytes()) : "";
  if (type_name.empty()) return shown + " is undefined";
  if (name.is_string()) return fmt::format("'{}' has no attribute {}", type_name, shown);
  return fmt::format("{} has no element {}", type_name,
                     name.is_integral() ? fmt::to_string(name.as_int()) : "of that key");
}

Value make_undefined(std::string hint) {
  auto reason = std::make_shared<UndefinedReason>();
  reason->hint = std::move(hint);
  return Value::object(Kind::kUndefined, std::move(reason));
}
Value make_undefined_name(std::string_view name) {
  auto reason = std::make_shared<UndefinedReason>();
  reason->name = Value(name);
  return Value::object(Kind::kUndefined, std::move(reason));
}
Value make_undefined_member(const Value& object, Value name) {
  auto reason = std::make_shared<UndefinedReason>();
  reason->type_name = object.is_none() ? "None" : fmt::format("{} object", type_name(object));
  if (name.is_string() || name.is_integral())
    reason->name = std::move(name);  // no container: it might nest without end
  return Value::object(Kind::kUndefined, std::move(reason));
}
void raise_undefined(const Value& value) { raise("{}", value.as<UndefinedReason>().message()); }

namespace {
Value check_depth(Value value) {
  if (value.depth() > kMaxValueDepth) raise("a value is nested more than {} levels deep", kMaxValueDepth);
  return value;
}
}  // namespace

Value list_value(Runtime& runtime, std::vector<Value> items) {
  runtime.budget().elements(items.size());
  return check_depth(Value::list(std::move(items)));
}
Value tuple_value(Runtime& runtime, std::vector<Value> items) {
  runtime.budget().elements(items.size());
  return check_depth(Value::tuple(std::move(items)));
}
Value dict_value(Runtime& runtime, Dict dict) {
  runtime.budget().elements(dict.size() * 2);
  return check_depth(Value::dict(std::move(dict)));
}
Value make_iterator(std::string_view python_type, std::vector<Value> items) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return check_depth(Value::object(Kind::kIterator,
                                   std::make_shared<Iterator>(Iterator{python_type, std::move(items), 0, depth + 1})));
}
void set_item(Dict& dict, Value key, Value value) {
  if (!is_hashable(key)) raise("unhashable type: '{}'", type_name(key));
  dict.set(std::move(key), std::move(value));
}

std::optional<int64_t> parse_int(std::string_view text, int64_t base) {
  std::string digits;
  bool is_negative = false;
  text = strip_spaces(text);
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    is_negative = text[0] == '-';
    text.remove_prefix(1);
  }
  static constexpr std::pair<char, int> kPrefixes[] = {{'b', 2}, {'o', 8}, {'x', 16}};
  for (const auto& [letter, value] : kPrefixes) {
    if (text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter && (base == value || base == 0)) {
      base = value;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
      break;
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36) raise("int() base must be >= 2 and <= 36, or 0");
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_') continue;
    digits += text[i];
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  if (is_negative) digits.insert(0, 1, '-');
  int64_t result = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), result, static_cast<int>(base));
  if (error == std::errc::result_out_of_range) raise("an integer does not fit 64 bits");
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return result;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip_spaces(text);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_ascii_digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (text[i] == '_' && i > 0 && is_ascii_digit(i - 1) && is_ascii_digit(i + 1)) continue;
    digits += text[i];
  }
  std::string_view rest = digits;
  if (rest.starts_with('+')) {
    rest.remove_prefix(1);
    if (rest.starts_with('-')) return std::nullopt;
  }
  double result = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), result);
  if (error == std::errc::invalid_argument || end != rest.data() + rest.size() ||
      rest.find('(') != std::string_view::npos)
    return std::nullopt;
  if (error == std::errc::result_out_of_range)
    return rest.find("e-") == std::string_view::npos && rest.find("E-") == std::string_view::npos
               ? (rest[0] == '-' ? -HUGE_VAL : HUGE_VAL)
               : 0.0;
  return result;
}

int64_t float_to_int(double value) {
  if (std::isnan(value)) raise("cannot convert float NaN to integer");
  if (std::isinf(value)) raise("cannot convert float infinity to integer");
  if (value >= 9223372036854775808.0 || value < -9223372036854775808.0) raise("an integer does not fit 64 bits");
  return static_cast<int64_t>(value);
}

}  // namespace honeycrisp::text::jinja
