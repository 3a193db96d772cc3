// The tables of filters, tests, global functions and methods, and how arguments reach them.
#pragma once

#include "text/jinja/objects.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace honeycrisp::text::jinja {

// null if there is none of that name
const Signature* find_filter(std::string_view name);
const Signature* find_test(std::string_view name);
const Signature* find_function(std::string_view name);
const Signature* find_method(Kind kind, std::string_view name);  // of every kind that has methods

// The two halves of the filters: on single values and their text, and on sequences.
std::span<const Signature> value_filters();
std::span<const Signature> sequence_filters();

/// Arguments matched to the parameters of a signature as Python matches them.
class BoundArguments {
 public:
  BoundArguments(const Signature& signature, Arguments& arguments);

  const Signature& signature() const { return signature_; }
  Arguments& raw() { return raw_; }
  bool has(size_t i) const { return bound_[i] != nullptr; }
  /// Given and not none.
  bool has_value(size_t i) const { return has(i) && !bound_[i]->is_none(); }
  const Value& operator[](size_t i) const { return *bound_[i]; }
  Value get(size_t i, Value fallback) const { return has(i) ? *bound_[i] : std::move(fallback); }

  // Typed access; a TypeError that names the parameter if the kind is wrong.
  int64_t integer(size_t i, std::optional<int64_t> fallback = std::nullopt) const;
  bool boolean(size_t i, bool fallback) const;  // truthiness
  TextPtr text(size_t i) const;

 private:
  const Signature& signature_;
  Arguments& raw_;
  std::array<const Value*, Signature::kMaxParameters> bound_{};
};

/// Calls the function after binding; every native call goes through here.
Value call_native(Runtime& runtime, const Signature& signature, Arguments& arguments);

/// Linear search in a table of signatures; the tables are short and looked up when a template is parsed.
const Signature* find_signature(std::span<const Signature> table, std::string_view name);

}  // namespace honeycrisp::text::jinja
