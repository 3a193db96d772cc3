#include "base/text_escape.h"
#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"
#include "text/jinja/parser_impl.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace honeycrisp::text::jinja {
namespace {

constexpr uint32_t kMaxNesting = 160;  // statements and expressions in each other

Limits parser_limits() {
  Limits limits;
  limits.depth = kMaxNesting;
  return limits;
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText: return "template text";
    case TokenKind::kVariableBegin: return "'{{'";
    case TokenKind::kVariableEnd: return "'}}'";
    case TokenKind::kBlockBegin: return "'{%'";
    case TokenKind::kBlockEnd: return "'%}'";
    case TokenKind::kInteger:
    case TokenKind::kFloat: return "a number";
    case TokenKind::kString: return "a string";
    case TokenKind::kEnd: return "the end of the template";
    case TokenKind::kName:
    case TokenKind::kOperator: break;
  }
  return "'" + escape_for_display(token.text, 60) + "'";
}

std::string_view describe(TokenKind kind) {
  switch (kind) {
    case TokenKind::kBlockEnd: return "'%}'";
    case TokenKind::kVariableEnd: return "'}}'";
    default: return "a name";
  }
}

}  // namespace

Parser::Parser(std::vector<Token> tokens, uint32_t& line)
    : tokens_(std::move(tokens)), line_(line), budget_(parser_limits()) {}

Program Parser::run() {
  program_.well_known = {symbol("loop"), symbol("varargs"), symbol("kwargs"), symbol("caller")};
  program_.body = parse_body({});
  return std::move(program_);
}

Token Parser::take() {
  line_ = current().line;
  return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_[at_];  // never past the end token
}
bool Parser::skip_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  take();
  return true;
}
bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}
void Parser::unexpected(std::string_view expected) const {
  line_ = current().line;
  raise("expected {}, got {}", expected, describe(current()));
}
void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) unexpected(fmt::format("'{}'", op));
}
void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(fmt::format("'{}'", name));
}
void Parser::expect(TokenKind kind) {
  if (current().kind != kind) unexpected(describe(kind));
  take();
}
std::string Parser::take_name() {
  if (current().kind != TokenKind::kName) unexpected("a name");
  return take().text;
}

SymbolId Parser::symbol(const std::string& name) {
  const auto [at, is_new] = symbol_ids_.emplace(name, static_cast<SymbolId>(program_.symbols.size()));
  if (is_new) {
    program_.symbols.push_back(name);
    program_.functions.push_back(find_function(name));
  }
  return at->second;
}

Body Parser::parse_body(Names end_names) {
  const DepthGuard guard(budget_);
  Body body;
  for (;;) {
    switch (current().kind) {
      case TokenKind::kText: {
        Token token = take();
        body.push_back(std::make_unique<TextStatement>(token.line, std::move(token.text)));
        break;
      }
      case TokenKind::kVariableBegin: {
        auto print = std::make_unique<PrintStatement>(take().line);
        print->value = parse_tuple(true, false);
        expect(TokenKind::kVariableEnd);
        body.push_back(std::move(print));
        break;
      }
      case TokenKind::kBlockBegin: {
        take();
        const Token& name = current();
        if (name.kind != TokenKind::kName) unexpected("a tag name");
        if (std::ranges::find(end_names, std::string_view(name.text)) != end_names.end()) return body;
        parse_statement(body);
        expect(TokenKind::kBlockEnd);
        break;
      }
      default: {
        line_ = current().line;
        if (end_names.size() != 0)
          raise("unexpected end of template, looking for '{}'", fmt::join(end_names, "' or '"));
        return body;
      }
    }
  }
}

Body Parser::parse_block(Names end_names) {
  skip_operator(":");
  expect(TokenKind::kBlockEnd);
  return parse_body(end_names);
}

Body Parser::parse_last_block(std::string_view end_name) {
  Body body = parse_block({end_name});
  take();
  return body;
}

void Parser::parse_statement(Body& out) {
  struct Tag {
    std::string_view name;
    void (Parser::*parse)(Body&);
  };
  static constexpr Tag kTags[] = {
      {"if", &Parser::parse_if},
      {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},
      {"with", &Parser::parse_with},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"print", &Parser::parse_print},
      {"generation", &Parser::parse_scope},
      {"autoescape", &Parser::parse_scope},
      {"block", &Parser::parse_named_block},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
  };
  const std::string name = current().text;
  line_ = current().line;
  for (const Tag& tag : kTags) {
    if (tag.name == name) return (this->*tag.parse)(out);
  }
  static constexpr std::string_view kOtherTemplates[] = {"include", "import", "extends", "from"};
  if (std::ranges::find(kOtherTemplates, name) != std::end(kOtherTemplates)) {
    raise("tag '{}' is not supported: a chat template cannot load other templates", name);
  }
  raise("encountered unknown tag '{}'", escape_for_display(name, 60));
}

void Parser::parse_if(Body& out) {
  auto node = std::make_unique<IfStatement>(take().line);
  ++conditional_depth_;
  for (;;) {
    ExprPtr condition = parse_tuple(false, false);
    Body body = parse_block({"elif", "else", "endif"});
    node->branches.emplace_back(std::move(condition), std::move(body));
    const std::string end = take().text;
    if (end == "elif") continue;
    if (end == "else") node->otherwise = parse_last_block("endif");
    break;
  }
  --conditional_depth_;
  out.push_back(std::move(node));
}

void Parser::parse_for(Body& out) {
  auto node = std::make_unique<ForStatement>(take().line);
  ++for_depth_;
  node->target = parse_target(false, true);
  check_not_loop(node->target);
  expect_name("in");
  node->iterable = parse_tuple(false, false, true);
  if (skip_name("if")) node->filter = parse_expression();
  node->is_recursive = skip_name("recursive");
  ++loop_depth_;
  node->body = parse_block({"endfor", "else"});
  --loop_depth_;
  if (take().text == "else") node->otherwise = parse_last_block("endfor");
  --for_depth_;
  out.push_back(std::move(node));
}

void Parser::parse_set(Body& out) {
  const uint32_t line = take().line;
  Target target = parse_target(true, false);
  check_not_loop(target);
  if (skip_operator("=")) {
    auto node = std::make_unique<SetStatement>(line);
    node->target = std::move(target);
    node->value = parse_tuple(true, false);
    out.push_back(std::move(node));
    return;
  }
  auto node = std::make_unique<SetBlockStatement>(line);
  node->target = std::move(target);
  if (skip_operator("|")) {
    node->filters = std::make_unique<Chain>(line);
    parse_filters(*node->filters);
  }
  node->body = parse_last_block("endset");
  out.push_back(std::move(node));
}

void Parser::parse_with(Body& out) {
  auto node = std::make_unique<WithStatement>(take().line);
  while (current().kind != TokenKind::kBlockEnd && !current().is_operator(":")) {
    if (!node->assignments.empty()) expect_operator(",");
    Target target = parse_target(false, false);
    expect_operator("=");
    node->assignments.emplace_back(std::move(target), parse_expression());
  }
  node->body = parse_last_block("endwith");
  out.push_back(std::move(node));
}

void Parser::parse_signature(MacroDefinition& macro) {
  expect_operator("(");
  while (!current().is_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    const std::string name = take_name();
    if (std::ranges::find(macro.parameter_names, name) != macro.parameter_names.end()) {
      raise("duplicate parameter '{}' of macro '{}'", name, macro.name);
    }
    macro.parameters.push_back(symbol(name));
    macro.parameter_names.push_back(name);
    if (skip_operator("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      raise("non-default parameter follows default parameter");
    }
  }
  take();
}

void Parser::parse_macro_body(MacroDefinition& macro, std::string_view end_name) {
  const int loops_outside = std::exchange(loop_depth_, 0);
  open_macros_.push_back(&macro);
  macro.body = parse_last_block(end_name);
  open_macros_.pop_back();
  loop_depth_ = loops_outside;
  for (const std::string& name :
       macro.parameter_names) {  // a parameter of that name takes the place of the special one
    if (name == "varargs") macro.uses_varargs = false;
    if (name == "kwargs") macro.uses_kwargs = false;
    if (name == "caller") macro.uses_caller = false;
  }
}

void Parser::parse_macro(Body& out) {
  auto node = std::make_unique<MacroStatement>(take().line);
  node->macro.name = take_name();
  node->symbol = symbol(node->macro.name);
  parse_signature(node->macro);
  parse_macro_body(node->macro, "endmacro");
  out.push_back(std::move(node));
}

void Parser::parse_call_block(Body& out) {
  auto node = std::make_unique<CallBlockStatement>(take().line);
  node->caller.name = "caller";
  if (current().is_operator("(")) parse_signature(node->caller);
  ExprPtr call = parse_expression();
  const bool is_call =
      call->kind == ExprKind::kChain && static_cast<Chain&>(*call).links.back().kind == LinkKind::kCall;
  if (!is_call) raise("expected a call after '{{% call'");
  node->call.reset(static_cast<Chain*>(call.release()));
  parse_macro_body(node->caller, "endcall");
  out.push_back(std::move(node));
}

void Parser::parse_filter_block(Body& out) {
  auto node = std::make_unique<FilterBlockStatement>(take().line);
  node->filters = std::make_unique<Chain>(node->line);
  parse_filters(*node->filters);
  node->body = parse_last_block("endfilter");
  out.push_back(std::move(node));
}

void Parser::parse_print(Body& out) {
  const uint32_t line = take().line;
  for (bool is_first = true; current().kind != TokenKind::kBlockEnd; is_first = false) {
    if (!is_first) expect_operator(",");
    auto node = std::make_unique<PrintStatement>(line);
    node->value = parse_expression();
    out.push_back(std::move(node));
  }
}

void Parser::parse_scope(Body& out) {
  const Token tag = take();
  auto node = std::make_unique<ScopeStatement>(tag.line);
  if (tag.text == "autoescape") {
    const ExprPtr value = parse_expression();
    const bool is_off = value->kind == ExprKind::kLiteral && static_cast<Literal&>(*value).value.is(Kind::kBool) &&
                        static_cast<Literal&>(*value).value.as_int() == 0;
    if (!is_off) raise("autoescape is not supported");
    node->body = parse_last_block("endautoescape");
  } else {
    const int loops_outside = std::exchange(loop_depth_, 0);
    node->body = parse_last_block("endgeneration");
    loop_depth_ = loops_outside;
  }
  out.push_back(std::move(node));
}

void Parser::parse_named_block(Body& out) {
  auto node = std::make_unique<ScopeStatement>(take().line);
  const std::string name = take_name();
  node->sees_only_globals = !skip_name("scoped");
  skip_name("required");
  const int loops_outside = std::exchange(loop_depth_, 0);
  node->body = parse_last_block("endblock");
  loop_depth_ = loops_outside;
  skip_name(name);
  out.push_back(std::move(node));
}

void Parser::parse_loop_control(Body& out) {
  const Token tag = take();
  if (loop_depth_ == 0) raise("'{}' outside of a loop", tag.text);
  out.push_back(
      std::make_unique<Statement>(tag.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, tag.line));
}

Target Parser::parse_single_target(bool allows_namespace, bool ends_at_in) {
  if (skip_operator("(")) {
    const DepthGuard guard(budget_);
    Target target = parse_target(allows_namespace, ends_at_in);
    expect_operator(")");
    return target;
  }
  static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  Target target;
  target.line = current().line;
  const std::string name = take_name();
  if (std::ranges::find(kConstants, name) != std::end(kConstants)) raise("can't assign to '{}'", name);
  target.symbol = symbol(name);
  if (allows_namespace && skip_operator(".")) target.attribute = take_name();
  return target;
}

Target Parser::parse_target(bool allows_namespace, bool ends_at_in) {
  Target tuple;
  tuple.line = current().line;
  for (;;) {
    const bool is_end =
        current().is_operator(")") || current().kind == TokenKind::kBlockEnd || (ends_at_in && current().is_name("in"));
    if (is_end) break;
    tuple.elements.push_back(parse_single_target(allows_namespace, ends_at_in));
    if (!skip_operator(",")) break;
    tuple.is_tuple = true;
  }
  if (tuple.elements.empty()) unexpected("a name to assign to");
  if (tuple.is_tuple) return tuple;
  Target only = std::move(tuple.elements.front());
  return only;
}

void Parser::check_not_loop(const Target& target) const {
  for (const Target& element : target.elements) check_not_loop(element);
  const bool is_loop = !target.is_tuple && !target.attribute && target.symbol == program_.well_known.loop;
  if (is_loop && for_depth_ > 0) raise("can't assign to special loop variable in for-loop target");
}

Program parse_program(std::string_view source, uint32_t& line) { return Parser(tokenize(source, line), line).run(); }

}  // namespace honeycrisp::text::jinja
