// The recursive-descent parser behind parser.h, shared by parse_statement.cpp and parse_expression.cpp.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/lexer.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace honeycrisp::text::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, uint32_t& line);
  Program run();

 private:
  using Names = std::initializer_list<std::string_view>;

  // tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& next_token() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take();
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  void expect(TokenKind kind);
  std::string take_name();
  [[noreturn]] void unexpected(std::string_view expected) const;
  SymbolId symbol(const std::string& name);

  // statements (parse_statement.cpp)
  Body parse_body(Names end_names);                  // up to, not past, the name that ends it
  Body parse_block(Names end_names);                 // the end of the tag, then the body
  Body parse_last_block(std::string_view end_name);  // and past the name
  void parse_statement(Body& out);
  void parse_if(Body& out);
  void parse_for(Body& out);
  void parse_set(Body& out);
  void parse_with(Body& out);
  void parse_macro(Body& out);
  void parse_call_block(Body& out);
  void parse_filter_block(Body& out);
  void parse_print(Body& out);
  void parse_scope(Body& out);
  void parse_named_block(Body& out);
  void parse_loop_control(Body& out);
  void parse_signature(MacroDefinition& macro);
  void parse_macro_body(MacroDefinition& macro, std::string_view end_name);
  Target parse_target(bool allows_namespace, bool ends_at_in);
  Target parse_single_target(bool allows_namespace, bool ends_at_in);
  void check_not_loop(const Target& target) const;

  // expressions (parse_expression.cpp)
  ExprPtr parse_expression(bool allows_conditional = true);
  ExprPtr parse_conditional();
  ExprPtr parse_logic(bool is_or);
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_arithmetic(int level);
  ExprPtr parse_concat();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_constant_or_name();
  ExprPtr parse_tuple(bool allows_conditional, bool has_parentheses, bool ends_at_recursive = false);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_links(ExprPtr base, bool with_filters);
  void parse_postfix(std::vector<Link>& links);
  void parse_subscript(Link& link);
  void parse_filters(Chain& chain);  // name(arguments)|name(arguments)…
  Link parse_filter();
  Link parse_test();
  CallArguments parse_arguments();

  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t& line_;
  Budget budget_;
  Program program_;
  std::unordered_map<std::string, SymbolId> symbol_ids_;
  std::vector<MacroDefinition*> open_macros_;  // innermost last: which of varargs, kwargs, caller their bodies read
  int loop_depth_ = 0;                         // loops around the current statement, inside the innermost macro
  int for_depth_ = 0;                          // the same, macros or not: there `loop` cannot be assigned to
  int conditional_depth_ = 0;                  // inside these, an unknown filter is an error only when it is reached
};

}  // namespace honeycrisp::text::jinja
