// Runs a Program once: scopes, statements, expressions and calls. One object per render, used by one thread.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace honeycrisp::text::jinja {

/// Variables of one loop iteration, macro call or block. The global ones are the interpreter's.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  std::shared_ptr<Scope> parent;  // null: the globals
  std::vector<std::pair<SymbolId, Value>> variables;
  bool is_captured = false;  // a macro refers to it

  void set(SymbolId symbol, Value value);
};

class Interpreter final : public Runtime {
 public:
  Interpreter(const Program& program, const Dict& variables, const Limits& limits,
              const std::function<std::tm()>& clock);
  ~Interpreter() override;

  /// Throws Failure; line() then holds the place.
  TextPtr run();
  uint32_t line() const { return line_; }

  Value call(const Value& callee, Arguments& arguments) override;

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class ScopeGuard;

  // statements (interpreter.cpp)
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  void print(const Value& value);
  Flow execute_if(const IfStatement& node);
  void execute_for(const ForStatement& node);
  Flow execute_set_block(const SetBlockStatement& node);
  Flow execute_filter_block(const FilterBlockStatement& node);
  Flow execute_with(const WithStatement& node);
  void execute_call_block(const CallBlockStatement& node);
  Flow execute_scope(const ScopeStatement& node);
  void run_loop(const ForStatement& node, const Value& iterable, size_t depth, const std::shared_ptr<Scope>& outer);
  std::vector<Value> filter_items(const ForStatement& node, std::vector<Value> items,
                                  const std::shared_ptr<Scope>& outer);
  Value call_macro(const Macro& macro, Arguments& arguments);
  void bind_parameters(const MacroDefinition& macro, Arguments& arguments, Scope& scope);
  Value call_loop(const Loop& loop, const Arguments& arguments);
  Value capture_macro(const MacroDefinition& definition);
  /// Runs `body` with the output going to a text of its own.
  Flow capture(const Body& body, TextPtr& text);

  // variables
  const Value* find_variable(SymbolId symbol) const;
  Value load(SymbolId symbol) const;
  void assign(const Target& target, const Value& value);
  void assign_name(SymbolId symbol, Value value);

  // expressions (evaluator.cpp)
  Value evaluate(const Expr& expr);
  Value evaluate_sequence(const Operands& node);
  Value evaluate_dict(const Operands& node);
  Value evaluate_logic(const Operands& node);
  Value evaluate_concat(const Operands& node);
  Value evaluate_arithmetic(const Binary& node);
  bool evaluate_compare(const Binary& node);
  Value evaluate_conditional(const Conditional& node);
  Value evaluate_chain(const Chain& chain, size_t link_count, const Value* base);
  Value evaluate_link(const Value& value, const Link& link);
  Value evaluate_slice(const Value& value, const Link& link);
  Value apply_filter_or_test(const Value& value, const Link& link);
  void evaluate_arguments(const CallArguments& node, Arguments& out);
  void expand_keywords(const Value& mapping, Arguments& out);

  const Program& program_;
  std::vector<std::optional<Value>> globals_;  // by symbol
  std::shared_ptr<Scope> scope_;               // null: the globals
  std::vector<std::shared_ptr<Scope>> captured_;
  TextBuilder* out_ = nullptr;
  const TextBuilder* result_ = nullptr;  // the outermost `out_`
  uint32_t line_ = 0;
};

}  // namespace honeycrisp::text::jinja
