#include "text/jinja/operators.h"

#include "text/jinja/escape.h"
#include "text/jinja/string_ops.h"

#include <algorithm>
#include <cmath>

namespace honeycrisp::text::jinja {
namespace {

[[noreturn]] void raise_operands(std::string_view symbol, const Value& a, const Value& b) {
  if (a.is_undefined()) raise_undefined(a);
  if (b.is_undefined()) raise_undefined(b);
  raise("unsupported operand type(s) for {}: '{}' and '{}'", symbol, type_name(a), type_name(b));
}

[[noreturn]] void raise_overflow(std::string_view symbol) {
  raise("integer overflow in {}: more than 64 bits", symbol);
}

std::string_view symbol_of(BinaryOp op) {
  static constexpr std::string_view kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

/// Floor division and its remainder, which has the sign of the divisor.
int64_t floor_div(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;  // INT64_MIN % -1 traps
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
double floor_mod(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}
/// CPython's float floor division: exact where floor(a / b) would round up.
double floor_div(double a, double b) {
  const double quotient = (a - floor_mod(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) raise("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  for (;;) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) raise_overflow("**");
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) raise_overflow("**");
  }
}

Value int_arithmetic(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) raise_overflow("+");
      return result;
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) raise_overflow("-");
      return result;
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) raise_overflow("*");
      return result;
    case BinaryOp::kPower: return int_power(a, b);
    default: break;
  }
  if (b == 0) raise("{}", op == BinaryOp::kDivide ? "division by zero" : "integer division or modulo by zero");
  if (op == BinaryOp::kDivide) return static_cast<double>(a) / static_cast<double>(b);
  if (op == BinaryOp::kModulo) return floor_mod(a, b);
  if (a == INT64_MIN && b == -1) raise_overflow("//");
  return floor_div(a, b);
}

Value float_arithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd: return a + b;
    case BinaryOp::kSubtract: return a - b;
    case BinaryOp::kMultiply: return a * b;
    case BinaryOp::kPower: {
      if (a == 0 && b < 0) raise("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b) && std::isfinite(b)) raise("complex numbers are not supported");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) raise("(34, 'Numerical result out of range')");
      return result;
    }
    default: break;
  }
  if (b == 0) raise("float division, floor division or modulo by zero");
  if (op == BinaryOp::kDivide) return a / b;
  return op == BinaryOp::kModulo ? floor_mod(a, b) : floor_div(a, b);
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    TextBuilder out(runtime.budget());
    const bool is_markup = a.as_text().is_markup() || b.as_text().is_markup();
    for (const Value* side : {&a, &b}) {
      if (is_markup && !side->as_text().is_markup()) {
        append_escaped(out, side->as_text());
      } else {
        out.append(side->as_text());
      }
    }
    return out.finish(is_markup);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    runtime.budget().elements(a.items().size() + b.items().size());
    std::vector<Value> items;
    items.reserve(a.items().size() + b.items().size());
    items.insert(items.end(), a.items().begin(), a.items().end());
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (b.is_undefined()) raise_undefined(b);
  if (a.is_string()) raise("can only concatenate str (not \"{}\") to str", type_name(b));
  if (a.is_sequence()) raise("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b));
  raise_operands("+", a, b);
}

Value repeat(Runtime& runtime, const Value& sequence, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (sequence.is_string()) {
    const Text& text = sequence.as_text();
    TextBuilder out(runtime.budget());
    if (text.input().empty()) {
      out.append_repeated(text.bytes(), times);
    } else {
      for (size_t i = 0; i < times && text.size() != 0; ++i) out.append(text);
    }
    return out.finish(text.is_markup());
  }
  const std::vector<Value>& source = sequence.items();
  if (source.empty()) return sequence;
  if (times > SIZE_MAX / 64 / source.size()) raise_exhausted("steps");
  runtime.budget().elements(times * source.size());
  std::vector<Value> items;
  items.reserve(times * source.size());
  for (size_t i = 0; i < times; ++i) items.insert(items.end(), source.begin(), source.end());
  return sequence.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

std::optional<int> compare_items(Runtime& runtime, const Value& a, const Value& b, std::string_view symbol) {
  const DepthGuard guard(runtime.budget());
  const size_t common = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < common; ++i) {
    if (!equals(runtime, a.items()[i], b.items()[i])) return compare(runtime, a.items()[i], b.items()[i], symbol);
  }
  return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size() ? 1 : 0;
}

bool dicts_equal(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::ranges::all_of(a.entries(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.key);
    return other != nullptr && equals(runtime, entry.value, *other);
  });
}

/// Exact comparison of an integer with a float.
std::optional<int> compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  const auto x = a.is_integral() ? static_cast<long double>(a.as_int()) : static_cast<long double>(a.as_float());
  const auto y = b.is_integral() ? static_cast<long double>(b.as_int()) : static_cast<long double>(b.as_float());
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  return x < y ? -1 : x > y;
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return value.as_text().is_markup() ? "Markup" : "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kDictView: {
      const DictView::Part part = value.as<DictView>().part;
      return part == DictView::Part::kKeys     ? "dict_keys"
             : part == DictView::Part::kValues ? "dict_values"
                                               : "dict_items";
    }
    case Kind::kRange: return "range";
    case Kind::kIterator: return value.as<Iterator>().type_name;
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kMacro: return "Macro";
    case Kind::kFunction: return value.as<Function>().is_method ? "builtin_function_or_method" : "function";
    case Kind::kCycler: return "Cycler";
    case Kind::kJoiner: return "Joiner";
  }
  return "object";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_float() != 0;
    default: return length(value).value_or(1) != 0;
  }
}

bool equals(Runtime& runtime, const Value& a, const Value& b) {
  runtime.budget().step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString: return a.as_text().bytes() == b.as_text().bytes();
    case Kind::kNone:
    case Kind::kUndefined: return true;
    case Kind::kList:
    case Kind::kTuple: {
      const DepthGuard guard(runtime.budget());
      return std::ranges::equal(a.items(), b.items(),
                                [&](const Value& x, const Value& y) { return equals(runtime, x, y); });
    }
    case Kind::kDict: {
      const DepthGuard guard(runtime.budget());
      return dicts_equal(runtime, a.as_dict(), b.as_dict());
    }
    case Kind::kRange: {
      const Range &x = a.as<Range>(), &y = b.as<Range>();
      return x.size() == y.size() && (x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step)));
    }
    default: return a.identity() == b.identity();
  }
}

std::optional<int> compare(Runtime& runtime, const Value& a, const Value& b, std::string_view symbol) {
  runtime.budget().step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {  // UTF-8 sorts as its code points do
    const int order = a.as_text().bytes().compare(b.as_text().bytes());
    return order < 0 ? -1 : order > 0;
  }
  if (a.is_sequence() && a.kind() == b.kind()) return compare_items(runtime, a, b, symbol);
  if (a.is_undefined()) raise_undefined(a);
  if (b.is_undefined()) raise_undefined(b);
  raise("'{}' not supported between instances of '{}' and '{}'", symbol, type_name(a), type_name(b));
}

bool compare_with(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  switch (op) {
    case BinaryOp::kEqual: return equals(runtime, a, b);
    case BinaryOp::kNotEqual: return !equals(runtime, a, b);
    case BinaryOp::kIn: return contains(runtime, b, a);
    case BinaryOp::kNotIn: return !contains(runtime, b, a);
    default: break;
  }
  const std::optional<int> order = compare(runtime, a, b, symbol_of(op));
  if (!order) return false;
  switch (op) {
    case BinaryOp::kLess: return *order < 0;
    case BinaryOp::kLessEqual: return *order <= 0;
    case BinaryOp::kGreater: return *order > 0;
    default: return *order >= 0;
  }
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString: {
      if (item.is_undefined()) raise("'in <string>' requires string as left operand, not Undefined");
      if (!item.is_string()) raise("'in <string>' requires string as left operand, not {}", type_name(item));
      runtime.budget().step(container.as_text().size() / 16 + 1);
      return find_bytes(container.as_text().bytes(), item.as_text().bytes(), 0) != std::string_view::npos;
    }
    case Kind::kDict:
      if (!is_hashable(item)) raise("unhashable type: '{}'", type_name(item));
      return container.as_dict().find(item) != nullptr;
    case Kind::kDictView:
      if (container.as<DictView>().part == DictView::Part::kKeys)
        return contains(runtime, container.as<DictView>().dict, item);
      break;
    default: break;
  }
  if (container.is_sequence()) {
    return std::ranges::any_of(container.items(), [&](const Value& element) { return equals(runtime, element, item); });
  }
  if (!is_iterable(container)) raise("argument of type '{}' is not iterable", type_name(container));
  const std::vector<Value> elements = iterate(runtime, container);
  return std::ranges::any_of(elements, [&](const Value& element) { return equals(runtime, element, item); });
}

Value negate(const Value& operand) {
  if (operand.is(Kind::kFloat)) return -operand.as_float();
  if (operand.is_undefined()) raise_undefined(operand);
  if (!operand.is_integral()) raise("bad operand type for unary -: '{}'", type_name(operand));
  if (operand.as_int() == INT64_MIN) raise_overflow("unary -");
  return -operand.as_int();
}

Value unary_plus(const Value& operand) {
  if (operand.is(Kind::kFloat)) return operand;
  if (operand.is_undefined()) raise_undefined(operand);
  if (!operand.is_integral()) raise("bad operand type for unary +: '{}'", type_name(operand));
  return operand.as_int();
}

Value arithmetic(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? int_arithmetic(op, a.as_int(), b.as_int())
                                              : float_arithmetic(op, a.as_float(), b.as_float());
  }
  if (op == BinaryOp::kAdd) return add(runtime, a, b);
  if (op == BinaryOp::kModulo && a.is_string()) return format_percent(runtime, a.as_text(), b);
  if (op == BinaryOp::kMultiply) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeat(runtime, a, b.as_int());
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) return repeat(runtime, b, a.as_int());
    const bool has_sequence = a.is_string() || a.is_sequence();
    if (has_sequence && !b.is_undefined()) raise("can't multiply sequence by non-int of type '{}'", type_name(b));
  }
  raise_operands(symbol_of(op), a, b);
}

}  // namespace honeycrisp::text::jinja
