// The tests of `is`: https://jinja.palletsprojects.com/en/stable/templates/#list-of-builtin-tests
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

#include <cmath>

namespace honeycrisp::text::jinja {
namespace {

using Bound = BoundArguments;

template <Kind kind>
Value is_kind(Runtime&, Bound& a) {
  return a[0].is(kind);
}
template <bool expected>
Value is_bool(Runtime&, Bound& a) {
  return a[0].is(Kind::kBool) && (a[0].as_int() != 0) == expected;
}
Value is_defined(Runtime&, Bound& a) { return !a[0].is_undefined(); }
Value is_number(Runtime&, Bound& a) { return a[0].is_number(); }
Value is_sequence(Runtime&, Bound& a) {
  // what has both a length and subscripts; an undefined value has both, strange as it is
  return a[0].is_undefined() || a[0].is_string() || a[0].is_sequence() || a[0].is(Kind::kDict) || a[0].is(Kind::kRange);
}
Value is_iterable_value(Runtime&, Bound& a) { return is_iterable(a[0]) || a[0].is(Kind::kLoop); }
Value is_callable(Runtime&, Bound& a) {
  switch (a[0].kind()) {
    case Kind::kUndefined:
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kLoop:
    case Kind::kJoiner: return true;
    default: return false;
  }
}
Value is_same(Runtime&, Bound& a) {
  const Value &x = a[0], &y = a[1];
  if (x.kind() != y.kind()) return false;
  if (x.is_integral()) return x.as_int() == y.as_int();
  if (x.is(Kind::kFloat)) return x.as_float() == y.as_float();
  return x.identity() == y.identity();
}
Value is_escaped(Runtime&, Bound& a) { return a[0].is_string() && a[0].as_text().is_markup(); }

template <bool upper>
Value is_case(Runtime& r, Bound& a) {
  Arguments arguments{{Value(to_text(r, a[0]))}, {}};
  return call_native(r, *find_method(Kind::kString, upper ? "isupper" : "islower"), arguments);
}

bool remainder_is(Runtime& r, const Value& value, const Value& divisor, int64_t expected) {
  return equals(r, arithmetic(r, BinaryOp::kModulo, value, divisor), Value(expected));
}
Value is_odd(Runtime& r, Bound& a) { return remainder_is(r, a[0], Value(2), 1); }
Value is_even(Runtime& r, Bound& a) { return remainder_is(r, a[0], Value(2), 0); }
Value is_divisible(Runtime& r, Bound& a) { return remainder_is(r, a[0], a[1], 0); }

template <BinaryOp op>
Value compares(Runtime& r, Bound& a) {
  return compare_with(r, op, a[0], a[1]);
}

Value is_filter(Runtime&, Bound& a) { return a[0].is_string() && find_filter(a[0].as_text().bytes()) != nullptr; }
Value is_test(Runtime&, Bound& a) { return a[0].is_string() && find_test(a[0].as_text().bytes()) != nullptr; }

constexpr Signature kTests[] = {
    {"defined", is_defined, 1, {"value"}},
    {"undefined", is_kind<Kind::kUndefined>, 1, {"value"}},
    {"none", is_kind<Kind::kNone>, 1, {"value"}},
    {"string", is_kind<Kind::kString>, 1, {"value"}},
    {"mapping", is_kind<Kind::kDict>, 1, {"value"}},
    {"boolean", is_kind<Kind::kBool>, 1, {"value"}},
    {"integer", is_kind<Kind::kInt>, 1, {"value"}},
    {"float", is_kind<Kind::kFloat>, 1, {"value"}},
    {"true", is_bool<true>, 1, {"value"}},
    {"false", is_bool<false>, 1, {"value"}},
    {"number", is_number, 1, {"value"}},
    {"sequence", is_sequence, 1, {"value"}},
    {"iterable", is_iterable_value, 1, {"value"}},
    {"callable", is_callable, 1, {"obj"}},
    {"sameas", is_same, 2, {"value", "other"}},
    {"escaped", is_escaped, 1, {"value"}},
    {"lower", is_case<false>, 1, {"value"}},
    {"upper", is_case<true>, 1, {"value"}},
    {"odd", is_odd, 1, {"value"}},
    {"even", is_even, 1, {"value"}},
    {"divisibleby", is_divisible, 2, {"value", "num"}},
    {"in", compares<BinaryOp::kIn>, 2, {"value", "seq"}},
    {"eq", compares<BinaryOp::kEqual>, 2, {"a", "b"}},
    {"equalto", compares<BinaryOp::kEqual>, 2, {"a", "b"}},
    {"==", compares<BinaryOp::kEqual>, 2, {"a", "b"}},
    {"ne", compares<BinaryOp::kNotEqual>, 2, {"a", "b"}},
    {"!=", compares<BinaryOp::kNotEqual>, 2, {"a", "b"}},
    {"lt", compares<BinaryOp::kLess>, 2, {"a", "b"}},
    {"lessthan", compares<BinaryOp::kLess>, 2, {"a", "b"}},
    {"<", compares<BinaryOp::kLess>, 2, {"a", "b"}},
    {"le", compares<BinaryOp::kLessEqual>, 2, {"a", "b"}},
    {"<=", compares<BinaryOp::kLessEqual>, 2, {"a", "b"}},
    {"gt", compares<BinaryOp::kGreater>, 2, {"a", "b"}},
    {"greaterthan", compares<BinaryOp::kGreater>, 2, {"a", "b"}},
    {">", compares<BinaryOp::kGreater>, 2, {"a", "b"}},
    {"ge", compares<BinaryOp::kGreaterEqual>, 2, {"a", "b"}},
    {">=", compares<BinaryOp::kGreaterEqual>, 2, {"a", "b"}},
    {"filter", is_filter, 1, {"value"}},
    {"test", is_test, 1, {"value"}},
};

}  // namespace

const Signature* find_test(std::string_view name) { return find_signature(kTests, name); }

}  // namespace honeycrisp::text::jinja
