// Filters on sequences: https://jinja.palletsprojects.com/en/stable/templates/#list-of-builtin-filters
// Parameter 0 is the value that the filter is applied to. Where Jinja gives a generator, so do these.
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/stable_sort.h"
#include "text/jinja/string_ops.h"

#include <algorithm>

namespace honeycrisp::text::jinja {
namespace {

using Bound = BoundArguments;
constexpr std::string_view kGenerator = "generator";

/// "address.city" or "items.0": the path that filters take as `attribute`.
class AttributePath {
 public:
  AttributePath(Runtime& runtime, const Value& attribute) : runtime_(runtime) {
    if (attribute.is_none()) return;
    if (!attribute.is_string()) {
      parts_.push_back(attribute);
      return;
    }
    const Text dot(".");
    for (Value& part : split(runtime, attribute.text_ptr(), &dot, -1)) {
      const std::string_view text = part.as_text().bytes();
      const bool is_index = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(is_index ? Value(parse_int(text, 10).value_or(0)) : std::move(part));
    }
  }

  Value get(Value item, const Value& fallback = {}) const {
    for (const Value& part : parts_) {
      item = get_item(runtime_, item, part);
      if (item.is_undefined() && !fallback.is_none()) item = fallback;
    }
    return item;
  }

 private:
  Runtime& runtime_;
  std::vector<Value> parts_;
};

Value lower_if_string(Runtime& r, const Value& value) {
  return value.is_string() ? Value(change_case(r, value.text_ptr(), Case::kLower)) : value;
}

struct Keyed {
  Value key, item;
};
/// Stable; with `reverse` too, as Python's sorted.
void sort_keyed(Runtime& r, std::vector<Keyed>& items, bool reverse) {
  stable_sort(items, [&](const Keyed& a, const Keyed& b) {
    return compare(r, reverse ? b.key : a.key, reverse ? a.key : b.key, "<").value_or(0) < 0;
  });
}

std::vector<Value> items_of(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

Value filter_sort(Runtime& r, Bound& a) {
  const bool is_case_sensitive = a.boolean(2, false);
  std::vector<AttributePath> paths;
  if (a.has_value(3) && a[3].is_string()) {
    const Text comma(",");
    for (const Value& path : split(r, a[3].text_ptr(), &comma, -1)) paths.emplace_back(r, path);
  } else {
    paths.emplace_back(r, a.get(3, Value()));
  }
  std::vector<Keyed> keyed;
  for (Value& item : iterate(r, a[0])) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      const Value part = path.get(item);
      key.push_back(is_case_sensitive ? part : lower_if_string(r, part));
    }
    keyed.push_back({list_value(r, std::move(key)), std::move(item)});
  }
  sort_keyed(r, keyed, a.boolean(1, false));
  return list_value(r, items_of(std::move(keyed)));
}

Value filter_dictsort(Runtime& r, Bound& a) {
  if (!a[0].is(Kind::kDict)) {
    if (a[0].is_undefined()) raise_undefined(a[0]);
    raise("'{}' object has no attribute 'items'", type_name(a[0]));
  }
  const std::string by(a.has(2) ? a.text(2)->bytes() : "key");
  if (by != "key" && by != "value") raise("You can only sort by either \"key\" or \"value\"");
  const bool is_case_sensitive = a.boolean(1, false);
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : a[0].as_dict().entries()) {
    const Value& sorted_by = by == "key" ? key : value;
    keyed.push_back({is_case_sensitive ? sorted_by : lower_if_string(r, sorted_by), tuple_value(r, {key, value})});
  }
  sort_keyed(r, keyed, a.boolean(3, false));
  return list_value(r, items_of(std::move(keyed)));
}

Value filter_groupby(Runtime& r, Bound& a) {
  const AttributePath path(r, a[1]);
  const Value fallback = a.get(2, Value());
  const bool is_case_sensitive = a.boolean(3, false);
  std::vector<Keyed> keyed;
  for (Value& item : iterate(r, a[0])) {
    const Value key = path.get(item, fallback);
    keyed.push_back({is_case_sensitive ? key : lower_if_string(r, key), std::move(item)});
  }
  sort_keyed(r, keyed, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const Value key = keyed[i].key;
    for (; i < keyed.size() && equals(r, keyed[i].key, key); ++i) members.push_back(keyed[i].item);
    const Value shown = is_case_sensitive ? key : path.get(members.front(), fallback);
    groups.push_back(tuple_value(r, {shown, list_value(r, std::move(members))}));
  }
  return list_value(r, std::move(groups));
}

Value filter_unique(Runtime& r, Bound& a) {
  const bool is_case_sensitive = a.boolean(1, false);
  const AttributePath path(r, a.get(2, Value()));
  Dict seen;
  std::vector<Value> items;
  for (Value& item : iterate(r, a[0])) {
    Value key = path.get(item);
    if (!is_case_sensitive) key = lower_if_string(r, key);
    if (is_hashable(key) && seen.find(key) != nullptr) continue;
    set_item(seen, std::move(key), Value());
    items.push_back(std::move(item));
  }
  return make_iterator(kGenerator, std::move(items));
}

template <bool wants_max>
Value filter_extreme(Runtime& r, Bound& a) {
  const bool is_case_sensitive = a.boolean(1, false);
  const AttributePath path(r, a.get(2, Value()));
  std::optional<Keyed> best;
  for (Value& item : iterate(r, a[0])) {
    Value key = path.get(item);
    if (!is_case_sensitive) key = lower_if_string(r, key);
    const bool is_better =
        !best ||
        compare(r, wants_max ? best->key : key, wants_max ? key : best->key, wants_max ? ">" : "<").value_or(0) < 0;
    if (is_better) best = Keyed{std::move(key), std::move(item)};
  }
  return best ? best->item : make_undefined("No aggregated item, sequence was empty.");
}

Value filter_sum(Runtime& r, Bound& a) {
  Value total = a.get(2, Value(0));
  const AttributePath path(r, a.get(1, Value()));
  for (const Value& item : iterate(r, a[0])) total = arithmetic(r, BinaryOp::kAdd, total, path.get(item));
  return total;
}

Value filter_first(Runtime& r, Bound& a) {
  const auto value = first_of(r, a[0]);
  return value ? *value : make_undefined("No first item, sequence was empty.");
}

Value filter_last(Runtime& r, Bound& a) {
  if (a[0].is(Kind::kIterator) || !is_iterable(a[0])) raise("'{}' object is not reversible", type_name(a[0]));
  if (a[0].is_string() || a[0].is_sequence() || a[0].is(Kind::kRange)) {
    const int64_t size = *length(a[0]);
    if (size > 0) return get_item(r, a[0], Value(size - 1));
  }
  const std::vector<Value> items = iterate(r, a[0]);
  return items.empty() ? make_undefined("No last item, sequence was empty.") : items.back();
}

Value filter_list(Runtime& r, Bound& a) { return list_value(r, iterate(r, a[0])); }

Value filter_reverse(Runtime& r, Bound& a) {
  if (a[0].is_string()) return get_slice(r, a[0], Value(), Value(), Value(-1));
  if (!is_iterable(a[0])) raise("argument must be iterable");
  std::vector<Value> items = iterate(r, a[0]);
  std::ranges::reverse(items);
  if (a[0].is(Kind::kIterator)) return list_value(r, std::move(items));  // not reversible: Jinja makes a list of it
  return make_iterator(a[0].is(Kind::kList) ? "list_reverseiterator" : "reversed", std::move(items));
}

Value filter_join(Runtime& r, Bound& a) {
  const TextPtr separator = a.has(1) ? to_text(r, a[1]) : std::make_shared<const Text>("");
  const AttributePath path(r, a.get(2, Value()));
  TextBuilder out(r.budget());
  bool is_first = true;
  for (const Value& item : iterate(r, a[0])) {
    if (!is_first) out.append(*separator);
    is_first = false;
    append_str(r, out, path.get(item));
  }
  return out.finish();
}

Value filter_items(Runtime& r, Bound& a) {
  if (a[0].is_undefined()) return make_iterator(kGenerator, {});
  if (!a[0].is(Kind::kDict)) raise("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : a[0].as_dict().entries()) pairs.push_back(tuple_value(r, {key, value}));
  return make_iterator(kGenerator, std::move(pairs));
}

Value filter_batch(Runtime& r, Bound& a) {
  const int64_t size = a.integer(1);
  const bool fills = a.has_value(2);
  std::vector<Value> batches, batch;
  for (Value& item : iterate(r, a[0])) {
    if (static_cast<int64_t>(batch.size()) == size) batches.push_back(list_value(r, std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (fills && static_cast<int64_t>(batch.size()) < size) {
      r.budget().elements(static_cast<uint64_t>(size));
      batch.resize(static_cast<size_t>(size), a[2]);
    }
    batches.push_back(list_value(r, std::move(batch)));
  }
  return make_iterator(kGenerator, std::move(batches));
}

Value filter_slice(Runtime& r, Bound& a) {
  const std::vector<Value> items = iterate(r, a[0]);
  const int64_t slices = a.integer(1);
  if (slices == 0) raise("integer division or modulo by zero");
  if (slices < 0) return make_iterator(kGenerator, {});
  r.budget().elements(static_cast<uint64_t>(slices));
  const size_t count = static_cast<size_t>(slices), size = items.size() / count, longer = items.size() % count;
  std::vector<Value> result;
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t end = at + size + (i < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<ptrdiff_t>(at), items.begin() + static_cast<ptrdiff_t>(end));
    if (a.has_value(2) && i >= longer) part.push_back(a[2]);
    result.push_back(list_value(r, std::move(part)));
    at = end;
  }
  return make_iterator(kGenerator, std::move(result));
}

Value filter_map(Runtime& r, Bound& a) {
  std::vector<Value>& arguments = a.raw().positional;
  std::vector<Value> results;
  if (!is_true(arguments.front())) return make_iterator(kGenerator, {});
  const Value* attribute = a.raw().find("attribute");
  if (arguments.size() == 1 && attribute != nullptr) {
    const Value* fallback = a.raw().find("default");
    for (const auto& [name, value] : a.raw().keyword) {
      if (name != "attribute" && name != "default") raise("Unexpected keyword argument '{}'", name);
    }
    const AttributePath path(r, *attribute);
    for (const Value& item : iterate(r, arguments.front()))
      results.push_back(path.get(item, fallback != nullptr ? *fallback : Value()));
    return make_iterator(kGenerator, std::move(results));
  }
  if (arguments.size() < 2) raise("map requires a filter argument");
  if (!arguments[1].is_string()) raise("map wants the name of a filter, not '{}'", type_name(arguments[1]));
  for (const Value& item : iterate(r, arguments.front())) {
    Arguments call{{item}, a.raw().keyword};
    call.positional.insert(call.positional.end(), arguments.begin() + 2, arguments.end());
    results.push_back(r.call_filter(arguments[1].as_text().bytes(), call));
  }
  return make_iterator(kGenerator, std::move(results));
}

/// select, reject, selectattr, rejectattr
template <bool keeps, bool by_attribute>
Value filter_select(Runtime& r, Bound& a) {
  const std::vector<Value>& arguments = a.raw().positional;
  if (!is_true(arguments.front())) return make_iterator(kGenerator, {});
  constexpr size_t kTest = by_attribute ? 2 : 1;
  if (by_attribute && arguments.size() < 2) raise("Missing parameter for attribute name");
  const AttributePath path(r, by_attribute ? arguments[1] : Value());
  const bool has_test = arguments.size() > kTest;
  if (has_test && !arguments[kTest].is_string())
    raise("expected the name of a test, not '{}'", type_name(arguments[kTest]));
  std::vector<Value> results;
  for (Value& item : iterate(r, arguments.front())) {
    Value subject = path.get(item);
    bool passes = false;
    if (has_test) {
      Arguments call{{std::move(subject)}, a.raw().keyword};
      call.positional.insert(call.positional.end(), arguments.begin() + kTest + 1, arguments.end());
      passes = r.call_test(arguments[kTest].as_text().bytes(), call);
    } else {
      passes = is_true(subject);
    }
    if (passes == keeps) results.push_back(std::move(item));
  }
  return make_iterator(kGenerator, std::move(results));
}

constexpr int kVariadic = Signature::kVariadic;
constexpr Signature kFilters[] = {
    {"batch", filter_batch, 2, {"value", "linecount", "fill_with"}},
    {"dictsort", filter_dictsort, 1, {"value", "case_sensitive", "by", "reverse"}},
    {"first", filter_first, 1, {"seq"}},
    {"groupby", filter_groupby, 2, {"value", "attribute", "default", "case_sensitive"}},
    {"items", filter_items, 1, {"value"}},
    {"join", filter_join, 1, {"value", "d", "attribute"}},
    {"last", filter_last, 1, {"seq"}},
    {"list", filter_list, 1, {"value"}},
    {"map", filter_map, kVariadic, {}},
    {"max", filter_extreme<true>, 1, {"value", "case_sensitive", "attribute"}},
    {"min", filter_extreme<false>, 1, {"value", "case_sensitive", "attribute"}},
    {"reject", filter_select<false, false>, kVariadic, {}},
    {"rejectattr", filter_select<false, true>, kVariadic, {}},
    {"reverse", filter_reverse, 1, {"value"}},
    {"select", filter_select<true, false>, kVariadic, {}},
    {"selectattr", filter_select<true, true>, kVariadic, {}},
    {"slice", filter_slice, 2, {"value", "slices", "fill_with"}},
    {"sort", filter_sort, 1, {"value", "reverse", "case_sensitive", "attribute"}},
    {"sum", filter_sum, 1, {"iterable", "attribute", "start"}},
    {"unique", filter_unique, 1, {"value", "case_sensitive", "attribute"}},
};

}  // namespace

std::span<const Signature> sequence_filters() { return kFilters; }

const Signature* find_filter(std::string_view name) {
  const Signature* filter = find_signature(kFilters, name);
  return filter != nullptr ? filter : find_signature(value_filters(), name);
}

}  // namespace honeycrisp::text::jinja
