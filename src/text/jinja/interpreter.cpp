#include "text/jinja/interpreter.h"

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

#include <algorithm>

namespace honeycrisp::text::jinja {

/// Makes a scope the current one for a while.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> scope)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.scope_, std::move(scope))) {}
  ~ScopeGuard() { interpreter_.scope_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> outer_;
};

void Scope::set(SymbolId symbol, Value value) {
  for (auto& [known, old] : variables) {
    if (known == symbol) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(symbol, std::move(value));
}

Interpreter::Interpreter(const Program& program, const Dict& variables, const Limits& limits,
                         const std::function<std::tm()>& clock)
    : Runtime(limits, clock), program_(program), globals_(program.symbols.size()) {
  for (SymbolId symbol = 0; symbol < program.symbols.size(); ++symbol) {
    if (const Value* value = variables.find(program.symbols[symbol])) globals_[symbol] = *value;
  }
}

Interpreter::~Interpreter() {
  // Macros refer to scopes and scopes to macros. All captured scopes are emptied before any of them goes.
  globals_.clear();
  for (const auto& scope : captured_) scope->variables.clear();
  release_cycles();
}

TextPtr Interpreter::run() {
  for (const auto& value : globals_) {
    if (value && value->depth() > kMaxValueDepth)
      raise("a variable is nested more than {} levels deep", kMaxValueDepth);
  }
  TextBuilder result(budget());
  out_ = &result;
  result_ = &result;
  execute(program_.body);
  return result.finish();
}

// variables

const Value* Interpreter::find_variable(SymbolId symbol) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [known, value] : scope->variables) {
      if (known == symbol) return &value;
    }
  }
  return globals_[symbol] ? &*globals_[symbol] : nullptr;
}

Value Interpreter::load(SymbolId symbol) const {
  if (const Value* value = find_variable(symbol)) return *value;
  if (const Signature* function = program_.functions[symbol]) {
    return Value::object(Kind::kFunction, std::make_shared<Function>(Function{function, Value()}));
  }
  return make_undefined_name(program_.symbols[symbol]);
}

void Interpreter::assign_name(SymbolId symbol, Value value) {
  if (scope_ != nullptr) {
    scope_->set(symbol, std::move(value));
  } else {
    globals_[symbol] = std::move(value);
  }
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.attribute) {
    const Value* object = find_variable(target.symbol);
    if (object == nullptr || !object->is(Kind::kNamespace)) raise("cannot assign attribute on non-namespace object");
    return object->as<Namespace>().set(*target.attribute, value);
  }
  if (!target.is_tuple) return assign_name(target.symbol, value);
  if (!is_iterable(value)) raise("cannot unpack non-iterable {} object", type_name(value));
  const std::vector<Value> parts = iterate(*this, value);
  const size_t expected = target.elements.size();
  if (parts.size() < expected) raise("not enough values to unpack (expected {}, got {})", expected, parts.size());
  if (parts.size() > expected) raise("too many values to unpack (expected {})", expected);
  for (size_t i = 0; i < expected; ++i) assign(target.elements[i], parts[i]);
}

// statements

Interpreter::Flow Interpreter::execute(const Body& body) {
  const DepthGuard guard(budget());
  for (const auto& statement : body) {
    budget().step();
    line_ = statement->line;
    const Flow flow = execute(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::kText: out_->append(static_cast<const TextStatement&>(statement).text); break;
    case StatementKind::kPrint: print(evaluate(*static_cast<const PrintStatement&>(statement).value)); break;
    case StatementKind::kIf: return execute_if(static_cast<const IfStatement&>(statement));
    case StatementKind::kFor: execute_for(static_cast<const ForStatement&>(statement)); break;
    case StatementKind::kSet: {
      const auto& node = static_cast<const SetStatement&>(statement);
      assign(node.target, evaluate(*node.value));
      break;
    }
    case StatementKind::kSetBlock: return execute_set_block(static_cast<const SetBlockStatement&>(statement));
    case StatementKind::kMacro: {
      const auto& node = static_cast<const MacroStatement&>(statement);
      assign_name(node.symbol, capture_macro(node.macro));
      break;
    }
    case StatementKind::kCallBlock: execute_call_block(static_cast<const CallBlockStatement&>(statement)); break;
    case StatementKind::kFilterBlock: return execute_filter_block(static_cast<const FilterBlockStatement&>(statement));
    case StatementKind::kWith: return execute_with(static_cast<const WithStatement&>(statement));
    case StatementKind::kScope: return execute_scope(static_cast<const ScopeStatement&>(statement));
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  if (result_->size() > budget().output_bytes()) raise_exhausted("output");
  return Flow::kNormal;
}

void Interpreter::print(const Value& value) { append_str(*this, *out_, value); }

Interpreter::Flow Interpreter::execute_if(const IfStatement& node) {
  for (const auto& [condition, body] : node.branches) {
    line_ = condition->line;
    if (is_true(evaluate(*condition))) return execute(body);
  }
  return execute(node.otherwise);
}

void Interpreter::execute_for(const ForStatement& node) { run_loop(node, evaluate(*node.iterable), 0, scope_); }

std::vector<Value> Interpreter::filter_items(const ForStatement& node, std::vector<Value> items,
                                             const std::shared_ptr<Scope>& outer) {
  const ScopeGuard guard(*this, std::make_shared<Scope>(outer));
  std::vector<Value> kept;
  for (Value& item : items) {
    assign(node.target, item);
    if (is_true(evaluate(*node.filter))) kept.push_back(std::move(item));
  }
  return kept;
}

void Interpreter::run_loop(const ForStatement& node, const Value& iterable, size_t depth,
                           const std::shared_ptr<Scope>& outer) {
  auto loop = std::make_shared<Loop>();
  loop->items = iterate(*this, iterable);
  if (node.filter) loop->items = filter_items(node, std::move(loop->items), outer);
  if (loop->items.empty()) {
    const ScopeGuard guard(*this, std::make_shared<Scope>(outer));
    execute(node.otherwise);
    return;
  }
  loop->depth = depth;
  for (const Value& item : loop->items) loop->value_depth = std::max(loop->value_depth, item.depth() + 1);
  if (loop->value_depth > kMaxValueDepth) raise("a value is nested more than {} levels deep", kMaxValueDepth);
  if (node.is_recursive) {
    loop->recursive = &node;
    loop->outer = outer;
  }
  const Value loop_value = Value::object(Kind::kLoop, loop);
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    const ScopeGuard guard(*this, std::make_shared<Scope>(outer));
    scope_->set(program_.well_known.loop, loop_value);
    assign(node.target, loop->items[loop->index]);
    if (execute(node.body) == Flow::kBreak) break;
  }
}

Interpreter::Flow Interpreter::capture(const Body& body, TextPtr& text) {
  TextBuilder captured(budget());
  TextBuilder* const outer = std::exchange(out_, &captured);
  const Flow flow = execute(body);  // a failure ends the render, so that `out_` need not be restored then
  out_ = outer;
  text = captured.finish();
  return flow;
}

Interpreter::Flow Interpreter::execute_set_block(const SetBlockStatement& node) {
  TextPtr text;
  Value value;
  {
    const ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
    const Flow flow = capture(node.body, text);
    if (flow != Flow::kNormal) return flow;
    value = Value(text);
    if (node.filters) value = evaluate_chain(*node.filters, node.filters->links.size(), &value);
  }
  assign(node.target, value);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_filter_block(const FilterBlockStatement& node) {
  const ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  TextPtr text;
  const Flow flow = capture(node.body, text);
  if (flow != Flow::kNormal) return flow;
  const Value value(text);
  print(evaluate_chain(*node.filters, node.filters->links.size(), &value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_with(const WithStatement& node) {
  std::vector<Value> values;
  for (const auto& [target, value] : node.assignments) values.push_back(evaluate(*value));
  const ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  for (size_t i = 0; i < values.size(); ++i) assign(node.assignments[i].first, values[i]);
  return execute(node.body);
}

Interpreter::Flow Interpreter::execute_scope(const ScopeStatement& node) {
  const ScopeGuard guard(*this, std::make_shared<Scope>(node.sees_only_globals ? nullptr : scope_));
  return execute(node.body);
}

void Interpreter::execute_call_block(const CallBlockStatement& node) {
  const Link& link = node.call->links.back();
  const Value callee = evaluate_chain(*node.call, node.call->links.size() - 1, nullptr);
  Arguments arguments;
  evaluate_arguments(link.arguments, arguments);
  arguments.keyword.emplace_back("caller", capture_macro(node.caller));
  print(call(callee, arguments));
}

// calls

Value Interpreter::capture_macro(const MacroDefinition& definition) {
  if (scope_ != nullptr && !scope_->is_captured) {
    budget().elements(8);
    scope_->is_captured = true;
    captured_.push_back(scope_);
  }
  return Value::object(Kind::kMacro, std::make_shared<Macro>(Macro{&definition, scope_}));
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  switch (callee.kind()) {
    case Kind::kMacro: return call_macro(callee.as<Macro>(), arguments);
    case Kind::kLoop: return call_loop(callee.as<Loop>(), arguments);
    case Kind::kFunction: {
      const Function& function = callee.as<Function>();
      if (function.is_method) arguments.positional.insert(arguments.positional.begin(), function.self);
      return call_native(*this, *function.signature, arguments);
    }
    case Kind::kJoiner:
      return std::exchange(callee.as<Joiner>().used, true) ? Value(callee.as<Joiner>().separator) : Value("");
    case Kind::kUndefined: raise_undefined(callee);
    default: raise("'{}' object is not callable", type_name(callee));
  }
}

void Interpreter::bind_parameters(const MacroDefinition& macro, Arguments& arguments, Scope& scope) {
  const size_t count = macro.parameters.size(), given = std::min(arguments.positional.size(), count);
  const auto take_keyword = [&](std::string_view name) -> std::optional<Value> {
    const auto found =
        std::ranges::find(arguments.keyword, name, [](const auto& pair) { return std::string_view(pair.first); });
    if (found == arguments.keyword.end()) return std::nullopt;
    Value value = std::move(found->second);
    arguments.keyword.erase(found);
    return value;
  };
  for (size_t i = 0; i < count; ++i) {
    if (i < given) {
      scope.set(macro.parameters[i], arguments.positional[i]);
    } else if (auto value = take_keyword(macro.parameter_names[i])) {
      scope.set(macro.parameters[i], std::move(*value));
    }
  }
  if (macro.uses_caller) {
    auto caller = take_keyword("caller");
    scope.set(program_.well_known.caller,
              caller && !caller->is_none() ? std::move(*caller) : make_undefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    Dict rest;
    for (auto& [name, value] : arguments.keyword) rest.set(Value(name), std::move(value));
    scope.set(program_.well_known.kwargs, dict_value(*this, std::move(rest)));
  } else if (!arguments.keyword.empty()) {
    raise("macro '{}' takes no keyword argument '{}'", macro.name, arguments.keyword.front().first);
  }
  if (macro.uses_varargs) {
    const auto first = arguments.positional.begin() + static_cast<ptrdiff_t>(given);
    scope.set(program_.well_known.varargs, tuple_value(*this, {first, arguments.positional.end()}));
  } else if (arguments.positional.size() > count) {
    raise("macro '{}' takes not more than {} argument(s)", macro.name, count);
  }
}

Value Interpreter::call_macro(const Macro& macro, Arguments& arguments) {
  const MacroDefinition& definition = *macro.definition;
  const ScopeGuard guard(*this, std::make_shared<Scope>(macro.scope));
  bind_parameters(definition, arguments, *scope_);
  // Defaults see the parameters before them.
  const size_t count = definition.parameters.size(), first_default = count - definition.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    const SymbolId symbol = definition.parameters[i];
    const bool is_set =
        std::ranges::any_of(scope_->variables, [&](const auto& variable) { return variable.first == symbol; });
    if (is_set) continue;
    scope_->set(symbol, i >= first_default
                            ? evaluate(*definition.defaults[i - first_default])
                            : make_undefined("parameter '" + definition.parameter_names[i] + "' was not provided"));
  }
  TextPtr text;
  const uint32_t call_line = line_;
  capture(definition.body, text);
  line_ = call_line;
  return text;
}

Value Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  if (loop.recursive == nullptr) raise("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1 || !arguments.keyword.empty()) raise("loop() takes exactly one argument");
  TextBuilder captured(budget());
  TextBuilder* const outer = std::exchange(out_, &captured);
  run_loop(*loop.recursive, arguments.positional.front(), loop.depth + 1, loop.outer);
  out_ = outer;
  return captured.finish();
}

}  // namespace honeycrisp::text::jinja
