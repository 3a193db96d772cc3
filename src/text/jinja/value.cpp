#include "text/jinja/value.h"

#include "text/jinja/objects.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace honeycrisp::text::jinja {
namespace {

constexpr size_t kIndexedSize = 12;  // smaller dicts are searched

struct Items {
  std::vector<Value> items;
  uint32_t depth;
};
struct DictObject {
  Dict dict;
  uint32_t depth;
};

std::shared_ptr<const Items> make_items(std::vector<Value> items) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return std::make_shared<const Items>(Items{std::move(items), depth + 1});
}

size_t hash_value(const Value& value) {
  switch (value.kind()) {
    case Kind::kString: return std::hash<std::string_view>()(value.as_text().bytes());
    case Kind::kBool:
    case Kind::kInt: return std::hash<int64_t>()(value.as_int());
    case Kind::kFloat: {
      const double f = value.as_float();
      if (f == std::floor(f) && std::abs(f) < 9.0e18) return std::hash<int64_t>()(static_cast<int64_t>(f));
      return std::hash<double>()(f);
    }
    case Kind::kTuple: {
      size_t hash = 0x345678;
      for (const Value& item : value.items()) hash = hash * 1000003 ^ hash_value(item);
      return hash;
    }
    case Kind::kNone:
    case Kind::kUndefined: return static_cast<size_t>(value.kind());
    default: return std::hash<const void*>()(value.identity());
  }
}

/// Equality of hashable values.
bool keys_equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.as_int() == b.as_int() : a.as_float() == b.as_float();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString: return a.as_text().bytes() == b.as_text().bytes();
    case Kind::kTuple: return std::ranges::equal(a.items(), b.items(), keys_equal);
    case Kind::kNone:
    case Kind::kUndefined: return true;
    default: return a.identity() == b.identity();
  }
}

}  // namespace

Value::Value(std::string text)
    : kind_(Kind::kString), int_(0), object_(std::make_shared<const Text>(std::move(text))) {}

Value Value::list(std::vector<Value> items) { return object(Kind::kList, make_items(std::move(items))); }
Value Value::tuple(std::vector<Value> items) { return object(Kind::kTuple, make_items(std::move(items))); }

Value Value::dict(Dict entries) {
  uint32_t depth = 0;
  for (const auto& [key, value] : entries.entries()) depth = std::max({depth, key.depth(), value.depth()});
  return object(Kind::kDict, std::make_shared<const DictObject>(DictObject{std::move(entries), depth + 1}));
}

const std::vector<Value>& Value::items() const { return static_cast<const Items*>(object_.get())->items; }
const Dict& Value::as_dict() const { return static_cast<const DictObject*>(object_.get())->dict; }

uint32_t Value::depth() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple: return static_cast<const Items*>(object_.get())->depth;
    case Kind::kDict: return static_cast<const DictObject*>(object_.get())->depth;
    case Kind::kDictView: return as<DictView>().dict.depth();
    case Kind::kIterator: return as<Iterator>().depth;
    case Kind::kLoop: return as<Loop>().value_depth;
    case Kind::kCycler: return as<Cycler>().depth;
    case Kind::kFunction: return as<Function>().self.depth();
    default: return 0;
  }
}

bool is_hashable(const Value& key) {
  switch (key.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView: return false;
    case Kind::kTuple: return std::ranges::all_of(key.items(), is_hashable);
    default: return true;
  }
}

const Dict::Entry* Dict::find_entry(const Value& key, size_t hash) const {
  if (entries_.size() < kIndexedSize) {
    for (const Entry& entry : entries_) {
      if (keys_equal(entry.key, key)) return &entry;
    }
    return nullptr;
  }
  for (auto [at, end] = index_.equal_range(hash); at != end; ++at) {
    if (keys_equal(entries_[at->second].key, key)) return &entries_[at->second];
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  const size_t hash = hash_value(key);
  if (const Entry* entry = find_entry(key, hash)) {
    entries_[static_cast<size_t>(entry - entries_.data())].value = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value)});
  if (entries_.size() == kIndexedSize) {
    for (uint32_t i = 0; i < kIndexedSize; ++i) index_.emplace(hash_value(entries_[i].key), i);
  } else if (entries_.size() > kIndexedSize) {
    index_.emplace(hash, static_cast<uint32_t>(entries_.size() - 1));
  }
}

const Value* Dict::find(const Value& key) const {
  const Entry* entry = find_entry(key, entries_.size() < kIndexedSize ? 0 : hash_value(key));
  return entry != nullptr ? &entry->value : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (entries_.size() >= kIndexedSize) return find(Value(key));
  for (const Entry& entry : entries_) {
    if (entry.key.is_string() && entry.key.as_text().bytes() == key) return &entry.value;
  }
  return nullptr;
}

Value mark_input(const Value& value) {
  if (value.depth() > kMaxValueDepth) return value;
  switch (value.kind()) {
    case Kind::kString: {
      const Text& text = value.as_text();
      if (text.size() == 0) return value;
      return TextPtr(std::make_shared<const Text>(std::string(text.bytes()), std::vector<ByteRange>{{0, text.size()}},
                                                  text.is_markup()));
    }
    case Kind::kList:
    case Kind::kTuple: {
      std::vector<Value> items;
      items.reserve(value.items().size());
      for (const Value& item : value.items()) items.push_back(mark_input(item));
      return value.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    case Kind::kDict: {
      Dict dict;
      for (const auto& [key, item] : value.as_dict().entries()) dict.set(mark_input(key), mark_input(item));
      return Value::dict(std::move(dict));
    }
    default: return value;
  }
}

}  // namespace honeycrisp::text::jinja
