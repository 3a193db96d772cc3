// The values of the template language: Python's None, bool, int, float, str, list, tuple and dict, and the objects that
// only a render makes (objects.h). Immutable, reference counted, cheap to copy; safe to share between threads.
// Callers build values with the constructors, list() and dict(); conversion from JSON is theirs.
#pragma once

#include "text/jinja/text.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace honeycrisp::text::jinja {

class Dict;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  // made by renders only
  kDictView,
  kRange,
  kIterator,
  kNamespace,
  kLoop,
  kMacro,
  kFunction,
  kCycler,
  kJoiner,
};

class Value {
 public:
  Value() : kind_(Kind::kNone), int_(0) {}
  Value(std::nullptr_t) : Value() {}
  Value(bool value) : kind_(Kind::kBool), int_(value) {}
  Value(int value) : kind_(Kind::kInt), int_(value) {}
  Value(int64_t value) : kind_(Kind::kInt), int_(value) {}
  Value(double value) : kind_(Kind::kFloat), float_(value) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(std::string text);
  Value(TextPtr text) : kind_(Kind::kString), int_(0), object_(std::move(text)) {}
  template <class T>
  Value(const T*) = delete;  // no pointer becomes a bool

  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(Dict entries);
  template <class T>
  static Value object(Kind kind, std::shared_ptr<T> object) {
    Value value;
    value.kind_ = kind;
    value.object_ = std::move(object);
    return value;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_number() const { return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat; }
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // Each requires the kind it names.
  int64_t as_int() const { return int_; }                                                         // bool or int
  double as_float() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }  // any number
  const Text& as_text() const { return *static_cast<const Text*>(object_.get()); }
  TextPtr text_ptr() const { return std::static_pointer_cast<const Text>(object_); }
  const std::vector<Value>& items() const;  // list or tuple
  const Dict& as_dict() const;
  template <class T>
  T& as() const {
    return *static_cast<T*>(const_cast<void*>(object_.get()));
  }
  const void* identity() const { return object_.get(); }

  /// Containers nested in each other, 0 for what is none.
  uint32_t depth() const;

 private:
  Kind kind_;
  union {
    int64_t int_;
    double float_;
  };
  std::shared_ptr<const void> object_;
};

/// Python's hash contract: equal keys hash alike, so 1, 1.0 and true are one key. Keys of a kind that Python cannot
/// hash (lists, dicts) are refused by is_hashable.
bool is_hashable(const Value& key);

/// Keys in order of insertion. Lookup is constant time.
class Dict {
 public:
  struct Entry {
    Value key, value;
  };

  /// Adds, or replaces the value of an equal key, which keeps its place. Requires is_hashable(key).
  void set(Value key, Value value);
  const Value* find(const Value& key) const;  // null if absent
  const Value* find(std::string_view key) const;
  const Value* find(const std::string& key) const { return find(std::string_view(key)); }
  const Value* find(const char* key) const { return find(std::string_view(key)); }
  std::span<const Entry> entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

 private:
  const Entry* find_entry(const Value& key, size_t hash) const;

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, uint32_t> index_;  // hash of a key -> its entry; only from kIndexedSize on
};

/// The same value with every string in it, dict keys included, marked as input.
/// Requires value.depth() <= kMaxValueDepth (deeper values come back as they are; a render refuses them).
Value mark_input(const Value& value);

}  // namespace honeycrisp::text::jinja
