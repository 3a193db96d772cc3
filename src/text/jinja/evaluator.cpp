// Expressions: the other half of the Interpreter.
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace honeycrisp::text::jinja {

Value Interpreter::evaluate(const Expr& expr) {
  budget().step();
  switch (expr.kind) {
    case ExprKind::kLiteral: return static_cast<const Literal&>(expr).value;
    case ExprKind::kName: return load(static_cast<const Name&>(expr).symbol);
    default: break;
  }
  const DepthGuard guard(budget());
  switch (expr.kind) {
    case ExprKind::kLiteral:
    case ExprKind::kName: break;
    case ExprKind::kList:
    case ExprKind::kTuple: return evaluate_sequence(static_cast<const Operands&>(expr));
    case ExprKind::kDict: return evaluate_dict(static_cast<const Operands&>(expr));
    case ExprKind::kChain: {
      const auto& chain = static_cast<const Chain&>(expr);
      return evaluate_chain(chain, chain.links.size(), nullptr);
    }
    case ExprKind::kNegate: return negate(evaluate(*static_cast<const Operands&>(expr).operands[0]));
    case ExprKind::kPlus: return unary_plus(evaluate(*static_cast<const Operands&>(expr).operands[0]));
    case ExprKind::kNot: return !is_true(evaluate(*static_cast<const Operands&>(expr).operands[0]));
    case ExprKind::kArithmetic: return evaluate_arithmetic(static_cast<const Binary&>(expr));
    case ExprKind::kConcat: return evaluate_concat(static_cast<const Operands&>(expr));
    case ExprKind::kCompare: return evaluate_compare(static_cast<const Binary&>(expr));
    case ExprKind::kAnd:
    case ExprKind::kOr: return evaluate_logic(static_cast<const Operands&>(expr));
    case ExprKind::kConditional: return evaluate_conditional(static_cast<const Conditional&>(expr));
  }
  return {};
}

Value Interpreter::evaluate_sequence(const Operands& node) {
  std::vector<Value> items;
  items.reserve(node.operands.size());
  for (const ExprPtr& operand : node.operands) items.push_back(evaluate(*operand));
  return node.kind == ExprKind::kList ? list_value(*this, std::move(items)) : tuple_value(*this, std::move(items));
}

Value Interpreter::evaluate_dict(const Operands& node) {
  Dict dict;
  for (size_t i = 0; i + 1 < node.operands.size(); i += 2) {
    Value key = evaluate(*node.operands[i]);
    set_item(dict, std::move(key), evaluate(*node.operands[i + 1]));
  }
  return dict_value(*this, std::move(dict));
}

Value Interpreter::evaluate_logic(const Operands& node) {
  const bool stops_at = node.kind == ExprKind::kOr;
  for (size_t i = 0; i + 1 < node.operands.size(); ++i) {
    Value value = evaluate(*node.operands[i]);
    if (is_true(value) == stops_at) return value;
  }
  return evaluate(*node.operands.back());
}

Value Interpreter::evaluate_concat(const Operands& node) {
  TextBuilder out(budget());
  for (const ExprPtr& operand : node.operands) append_str(*this, out, evaluate(*operand));
  return out.finish();
}

Value Interpreter::evaluate_arithmetic(const Binary& node) {
  Value value = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    const Value right = evaluate(*operand);
    line_ = operand->line;
    value = arithmetic(*this, op, value, right);
  }
  return value;
}

bool Interpreter::evaluate_compare(const Binary& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    line_ = operand->line;
    if (!compare_with(*this, op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_conditional(const Conditional& node) {
  for (const auto& [value, condition] : node.branches) {
    if (is_true(evaluate(*condition))) return evaluate(*value);
  }
  if (node.otherwise) return evaluate(*node.otherwise);
  return make_undefined("the inline if-expression on line " + std::to_string(node.line) +
                        " evaluated to false and no else section was defined.");
}

Value Interpreter::evaluate_chain(const Chain& chain, size_t link_count, const Value* base) {
  Value value = base != nullptr ? *base : evaluate(*chain.base);
  for (size_t i = 0; i < link_count; ++i) {
    budget().step();
    value = evaluate_link(value, chain.links[i]);
  }
  return value;
}

Value Interpreter::evaluate_link(const Value& value, const Link& link) {
  switch (link.kind) {
    case LinkKind::kAttribute: line_ = link.line; return get_attribute(*this, value, link.name);
    case LinkKind::kItem: {
      const Value index = evaluate(*link.index);
      line_ = link.line;
      return get_item(*this, value, index);
    }
    case LinkKind::kSlice: return evaluate_slice(value, link);
    case LinkKind::kCall: {
      Arguments arguments;
      evaluate_arguments(link.arguments, arguments);
      line_ = link.line;
      return call(value, arguments);
    }
    case LinkKind::kFilter:
    case LinkKind::kTest: return apply_filter_or_test(value, link);
    case LinkKind::kNegatedTest: return !is_true(apply_filter_or_test(value, link));
  }
  return {};
}

Value Interpreter::evaluate_slice(const Value& value, const Link& link) {
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (link.slice[i]) bounds[i] = evaluate(*link.slice[i]);
  }
  line_ = link.line;
  return get_slice(*this, value, bounds[0], bounds[1], bounds[2]);
}

Value Interpreter::apply_filter_or_test(const Value& value, const Link& link) {
  Arguments arguments;
  arguments.positional.push_back(value);
  evaluate_arguments(link.arguments, arguments);
  line_ = link.line;
  if (link.signature == nullptr) {
    raise("no {} named {}", link.kind == LinkKind::kFilter ? "filter" : "test",
          quote_string(link.name.as_text().bytes()));
  }
  const Value result = call_native(*this, *link.signature, arguments);
  return result;
}

void Interpreter::evaluate_arguments(const CallArguments& node, Arguments& out) {
  for (const ExprPtr& argument : node.positional) out.positional.push_back(evaluate(*argument));
  if (node.star) {
    const Value more = evaluate(*node.star);
    if (!is_iterable(more)) raise("argument after * must be an iterable, not {}", type_name(more));
    for (Value& value : iterate(*this, more)) out.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : node.keyword) {
    if (out.find(name) != nullptr) raise("keyword argument repeated: {}", name);
    out.keyword.emplace_back(name, evaluate(*argument));
  }
  if (node.double_star) expand_keywords(evaluate(*node.double_star), out);
}

void Interpreter::expand_keywords(const Value& mapping, Arguments& out) {
  if (!mapping.is(Kind::kDict)) raise("argument after ** must be a mapping, not {}", type_name(mapping));
  budget().elements(mapping.as_dict().size());
  for (const auto& [key, value] : mapping.as_dict().entries()) {
    if (!key.is_string()) raise("keywords must be strings");
    const std::string_view name = key.as_text().bytes();
    if (out.find(name) != nullptr) raise("got multiple values for keyword argument {}", quote_string(name));
    out.keyword.emplace_back(name, value);
  }
}

}  // namespace honeycrisp::text::jinja
