// Python's operators on values: truth, equality, order, arithmetic, membership, subscripts and iteration.
// All of them throw Failure with the message of the Python exception in their place.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::text::jinja {

std::string_view type_name(const Value& value);  // "str", "NoneType", …
bool is_true(const Value& value);
bool equals(Runtime& runtime, const Value& a, const Value& b);
/// Order of numbers, strings, lists and tuples: negative, 0, positive. `symbol` is for the TypeError. Values that
/// compare unordered (NaN) give nullopt.
std::optional<int> compare(Runtime& runtime, const Value& a, const Value& b, std::string_view symbol);
bool contains(Runtime& runtime, const Value& container, const Value& item);

Value negate(const Value& operand);
Value unary_plus(const Value& operand);
Value arithmetic(Runtime& runtime, BinaryOp op, const Value& a, const Value& b);
bool compare_with(Runtime& runtime, BinaryOp op, const Value& a, const Value& b);

/// len(): nullopt for what has no length.
std::optional<int64_t> length(const Value& value);
bool is_iterable(const Value& value);
/// The elements, in order; uses iterators up.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
/// next(): an element of an iterator, or the first one of anything else; nullopt at the end.
std::optional<Value> first_of(Runtime& runtime, const Value& value);

/// a.name: attributes (methods) first, then items; undefined if there is neither.
Value get_attribute(Runtime& runtime, const Value& object, const Value& name);
/// getattr(a, name) alone; nullopt where Python raises AttributeError.
std::optional<Value> find_attribute(const Value& object, std::string_view name);
/// a[index]: items first, then attributes.
Value get_item(Runtime& runtime, const Value& object, const Value& index);
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);

Value make_undefined(std::string hint);
Value make_undefined_name(std::string_view name);
Value make_undefined_member(const Value& object, Value name);
[[noreturn]] void raise_undefined(const Value& value);

// Containers of bounded depth, paid from the budget.
Value list_value(Runtime& runtime, std::vector<Value> items);
Value tuple_value(Runtime& runtime, std::vector<Value> items);
Value dict_value(Runtime& runtime, Dict dict);
Value make_iterator(std::string_view python_type, std::vector<Value> items);
/// dict[key] = value, or a TypeError for an unhashable key.
void set_item(Dict& dict, Value key, Value value);

/// A string as an int or float, as int() and float() read it; nullopt if malformed.
std::optional<int64_t> parse_int(std::string_view text, int64_t base);
std::optional<double> parse_float(std::string_view text);
/// Truncation of a float; a Failure if it does not fit.
int64_t float_to_int(double value);

}  // namespace honeycrisp::text::jinja
