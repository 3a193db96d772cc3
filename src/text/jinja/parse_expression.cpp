#include "base/text_escape.h"
#include "text/jinja/builtins.h"
#include "text/jinja/parser_impl.h"

#include <algorithm>
#include <array>

namespace honeycrisp::text::jinja {
namespace {

struct OperatorRow {
  std::string_view text;
  BinaryOp op;
};
constexpr OperatorRow kSums[] = {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}};
constexpr OperatorRow kProducts[] = {
    {"*", BinaryOp::kMultiply}, {"/", BinaryOp::kDivide}, {"//", BinaryOp::kFloorDivide}, {"%", BinaryOp::kModulo}};
constexpr OperatorRow kPowers[] = {{"**", BinaryOp::kPower}};
constexpr OperatorRow kComparisons[] = {{"==", BinaryOp::kEqual},  {"!=", BinaryOp::kNotEqual},
                                        {"<", BinaryOp::kLess},    {"<=", BinaryOp::kLessEqual},
                                        {">", BinaryOp::kGreater}, {">=", BinaryOp::kGreaterEqual}};
// Loosest first. Jinja binds `~` tighter than + and looser than *, and ** to the left.
enum ArithmeticLevel { kSumLevel, kProductLevel, kPowerLevel, kUnaryLevel };
constexpr std::array<std::span<const OperatorRow>, 3> kLevels = {kSums, kProducts, kPowers};

const OperatorRow* find_operator(std::span<const OperatorRow> rows, const Token& token) {
  if (token.kind != TokenKind::kOperator) return nullptr;
  const auto row = std::ranges::find(rows, token.text, &OperatorRow::text);
  return row != rows.end() ? &*row : nullptr;
}

}  // namespace

ExprPtr Parser::parse_expression(bool allows_conditional) {
  const DepthGuard guard(budget_);
  return allows_conditional ? parse_conditional() : parse_logic(true);
}

ExprPtr Parser::parse_conditional() {
  ExprPtr value = parse_logic(true);
  while (current().is_name("if")) {
    auto node = std::make_unique<Conditional>(current().line);
    ++conditional_depth_;
    while (skip_name("if")) {
      ExprPtr condition = parse_logic(true);
      node->branches.emplace_back(std::move(value), std::move(condition));
      value = nullptr;
      if (!skip_name("else")) break;
      value = parse_logic(true);
    }
    --conditional_depth_;
    node->otherwise = std::move(value);
    value = std::move(node);  // `a if b if c`: the whole is the value of the next
  }
  return value;
}

ExprPtr Parser::parse_logic(bool is_or) {
  const uint32_t line = current().line;
  ExprPtr first = is_or ? parse_logic(false) : parse_not();
  const std::string_view word = is_or ? "or" : "and";
  if (!current().is_name(word)) return first;
  auto node = std::make_unique<Operands>(is_or ? ExprKind::kOr : ExprKind::kAnd, line);
  node->operands.push_back(std::move(first));
  while (skip_name(word)) node->operands.push_back(is_or ? parse_logic(false) : parse_not());
  return node;
}

ExprPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const DepthGuard guard(budget_);
  auto node = std::make_unique<Operands>(ExprKind::kNot, take().line);
  node->operands.push_back(parse_not());
  return node;
}

ExprPtr Parser::parse_compare() {
  auto node = std::make_unique<Binary>(ExprKind::kCompare, current().line);
  node->first = parse_arithmetic(kSumLevel);
  for (;;) {
    BinaryOp op;
    if (const OperatorRow* row = find_operator(kComparisons, current())) {
      take();
      op = row->op;
    } else if (skip_name("in")) {
      op = BinaryOp::kIn;
    } else if (current().is_name("not") && next_token().is_name("in")) {
      take();
      take();
      op = BinaryOp::kNotIn;
    } else {
      break;
    }
    node->rest.emplace_back(op, parse_arithmetic(kSumLevel));
  }
  if (node->rest.empty()) return std::move(node->first);
  return node;
}

ExprPtr Parser::parse_arithmetic(int level) {
  if (level == kUnaryLevel) return parse_unary(true);
  const auto operand = [&] { return level == kSumLevel ? parse_concat() : parse_arithmetic(level + 1); };
  const uint32_t line = current().line;
  ExprPtr first = operand();
  const std::span<const OperatorRow> rows = kLevels[static_cast<size_t>(level)];
  if (find_operator(rows, current()) == nullptr) return first;
  auto node = std::make_unique<Binary>(ExprKind::kArithmetic, line);
  node->first = std::move(first);
  while (const OperatorRow* row = find_operator(rows, current())) {
    take();
    node->rest.emplace_back(row->op, operand());
  }
  return node;
}

ExprPtr Parser::parse_concat() {
  const uint32_t line = current().line;
  ExprPtr first = parse_arithmetic(kProductLevel);
  if (!current().is_operator("~")) return first;
  auto node = std::make_unique<Operands>(ExprKind::kConcat, line);
  node->operands.push_back(std::move(first));
  while (skip_operator("~")) node->operands.push_back(parse_arithmetic(kProductLevel));
  return node;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  const bool is_minus = current().is_operator("-");
  if (!is_minus && !current().is_operator("+")) return parse_links(parse_primary(), with_filters);
  const DepthGuard guard(budget_);
  auto node = std::make_unique<Operands>(is_minus ? ExprKind::kNegate : ExprKind::kPlus, take().line);
  node->operands.push_back(parse_unary(false));  // -x|abs is (-x)|abs
  return parse_links(std::move(node), with_filters);
}

ExprPtr Parser::parse_constant_or_name() {
  const Token token = take();
  if (token.text == "true" || token.text == "True") return std::make_unique<Literal>(token.line, Value(true));
  if (token.text == "false" || token.text == "False") return std::make_unique<Literal>(token.line, Value(false));
  if (token.text == "none" || token.text == "None") return std::make_unique<Literal>(token.line, Value());
  for (MacroDefinition* macro : open_macros_) {
    macro->uses_varargs |= token.text == "varargs";
    macro->uses_kwargs |= token.text == "kwargs";
    macro->uses_caller |= token.text == "caller";
  }
  return std::make_unique<Name>(token.line, symbol(token.text));
}

ExprPtr Parser::parse_primary() {
  const uint32_t line = current().line;
  switch (current().kind) {
    case TokenKind::kName: return parse_constant_or_name();
    case TokenKind::kInteger: return std::make_unique<Literal>(line, Value(take().integer));
    case TokenKind::kFloat: return std::make_unique<Literal>(line, Value(take().number));
    case TokenKind::kString: {
      std::string text = take().text;
      while (current().kind == TokenKind::kString) text += take().text;
      return std::make_unique<Literal>(line, Value(std::move(text)));
    }
    default: break;
  }
  if (skip_operator("(")) {
    ExprPtr inner = parse_tuple(true, true);
    expect_operator(")");
    return inner;
  }
  if (skip_operator("[")) return parse_list();
  if (skip_operator("{")) return parse_dict();
  unexpected("an expression");
}

ExprPtr Parser::parse_tuple(bool allows_conditional, bool has_parentheses, bool ends_at_recursive) {
  auto node = std::make_unique<Operands>(ExprKind::kTuple, current().line);
  bool is_tuple = false;
  for (;;) {
    const bool is_end = current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
                        current().is_operator(")") || (ends_at_recursive && current().is_name("recursive"));
    if (is_end) break;
    node->operands.push_back(parse_expression(allows_conditional));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return node;
  if (!node->operands.empty()) return std::move(node->operands.front());
  if (!has_parentheses) unexpected("an expression");
  return node;
}

ExprPtr Parser::parse_list() {
  auto node = std::make_unique<Operands>(ExprKind::kList, current().line);
  while (!current().is_operator("]")) {
    if (!node->operands.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    node->operands.push_back(parse_expression());
  }
  take();
  return node;
}

ExprPtr Parser::parse_dict() {
  auto node = std::make_unique<Operands>(ExprKind::kDict, current().line);
  while (!current().is_operator("}")) {
    if (!node->operands.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    node->operands.push_back(parse_expression());
    expect_operator(":");
    node->operands.push_back(parse_expression());
  }
  take();
  return node;
}

ExprPtr Parser::parse_links(ExprPtr base, bool with_filters) {
  auto chain = std::make_unique<Chain>(base->line);
  parse_postfix(chain->links);
  while (with_filters) {
    if (skip_operator("|")) {
      chain->links.push_back(parse_filter());
    } else if (skip_name("is")) {
      chain->links.push_back(parse_test());
    } else if (current().is_operator("(")) {  // only after a filter or test may a call follow here
      Link link{.kind = LinkKind::kCall, .line = current().line};
      link.arguments = parse_arguments();
      chain->links.push_back(std::move(link));
    } else {
      break;
    }
  }
  if (chain->links.empty()) return base;
  chain->base = std::move(base);
  return chain;
}

void Parser::parse_postfix(std::vector<Link>& links) {
  for (;;) {
    Link link{.kind = LinkKind::kCall, .line = current().line};
    if (current().is_operator("(")) {
      link.arguments = parse_arguments();
    } else if (current().is_operator(".") || current().is_operator("[")) {
      parse_subscript(link);
    } else {
      return;
    }
    links.push_back(std::move(link));
  }
}

void Parser::parse_subscript(Link& link) {
  if (skip_operator(".")) {
    if (current().kind == TokenKind::kInteger) {
      link.kind = LinkKind::kItem;
      link.index = std::make_unique<Literal>(link.line, Value(take().integer));
    } else {
      link.kind = LinkKind::kAttribute;
      link.name = Value(take_name());
    }
    return;
  }
  take();
  link.kind = LinkKind::kItem;
  if (!current().is_operator(":")) link.index = parse_expression();
  if (current().is_operator(",")) {  // x[a, b]: the index is a tuple
    auto tuple = std::make_unique<Operands>(ExprKind::kTuple, link.line);
    tuple->operands.push_back(std::move(link.index));
    while (skip_operator(",")) tuple->operands.push_back(parse_expression());
    link.index = std::move(tuple);
  } else if (current().is_operator(":")) {
    link.kind = LinkKind::kSlice;
    link.slice[0] = std::move(link.index);
    for (int part = 1; part < 3 && skip_operator(":"); ++part) {
      if (!current().is_operator("]") && !current().is_operator(":")) link.slice[part] = parse_expression();
    }
  }
  expect_operator("]");
}

CallArguments Parser::parse_arguments() {
  CallArguments arguments;
  expect_operator("(");
  const auto check_order = [](bool is_in_order) {
    if (!is_in_order) raise("invalid syntax for function call expression");
  };
  for (bool is_first = true; !current().is_operator(")"); is_first = false) {
    if (!is_first) {
      expect_operator(",");
      if (current().is_operator(")")) break;
    }
    if (skip_operator("*")) {
      check_order(!arguments.star && !arguments.double_star);
      arguments.star = parse_expression();
    } else if (skip_operator("**")) {
      check_order(!arguments.double_star);
      arguments.double_star = parse_expression();
    } else if (current().kind == TokenKind::kName && next_token().is_operator("=")) {
      check_order(!arguments.double_star);
      std::string name = take().text;
      take();
      arguments.keyword.emplace_back(std::move(name), parse_expression());
    } else {
      check_order(!arguments.star && !arguments.double_star && arguments.keyword.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  take();
  return arguments;
}

Link Parser::parse_filter() {
  Link link{.kind = LinkKind::kFilter, .line = current().line};
  std::string name = take_name();
  while (skip_operator(".")) name += "." + take_name();
  link.signature = find_filter(name);
  if (link.signature == nullptr && conditional_depth_ == 0) raise("no filter named '{}'", escape_for_display(name, 60));
  link.name = Value(std::move(name));
  if (current().is_operator("(")) link.arguments = parse_arguments();
  return link;
}

void Parser::parse_filters(Chain& chain) {
  do {
    chain.links.push_back(parse_filter());
  } while (skip_operator("|"));
}

Link Parser::parse_test() {
  Link link{.kind = LinkKind::kTest, .line = current().line};
  if (skip_name("not")) link.kind = LinkKind::kNegatedTest;
  std::string name = take_name();
  while (skip_operator(".")) name += "." + take_name();
  link.signature = find_test(name);
  if (link.signature == nullptr && conditional_depth_ == 0) raise("no test named '{}'", escape_for_display(name, 60));
  link.name = Value(std::move(name));

  const Token& next = current();
  if (next.is_operator("(")) {
    link.arguments = parse_arguments();
    return link;
  }
  const bool starts_operand = next.kind == TokenKind::kName || next.kind == TokenKind::kString ||
                              next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat ||
                              next.is_operator("[") || next.is_operator("{");
  if (starts_operand && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
    if (next.is_name("is")) raise("you cannot chain multiple tests with is");
    const DepthGuard guard(budget_);
    link.arguments.positional.push_back(parse_links(parse_primary(), false));
  }
  return link;
}

}  // namespace honeycrisp::text::jinja
