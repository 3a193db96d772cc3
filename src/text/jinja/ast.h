// The parsed form of a template. Chains that the grammar makes left-recursive (a.b[c]|d, x + y + z, a if b else c) are
// flat lists, so that the depth of the tree is the nesting that the author wrote, not the length of an expression.
#pragma once

#include "text/jinja/objects.h"
#include "text/jinja/value.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace honeycrisp::text::jinja {

using SymbolId = uint32_t;  // index into Program::symbols

enum class ExprKind : uint8_t {
  kLiteral,
  kName,
  kList,
  kTuple,
  kDict,
  kChain,
  kNegate,
  kPlus,
  kNot,
  kArithmetic,
  kConcat,
  kCompare,
  kAnd,
  kOr,
  kConditional,
};

struct Expr {
  Expr(ExprKind k, uint32_t l) : kind(k), line(l) {}
  virtual ~Expr() = default;
  ExprKind kind;
  uint32_t line;
};
using ExprPtr = std::unique_ptr<Expr>;

struct Literal : Expr {
  Literal(uint32_t l, Value v) : Expr(ExprKind::kLiteral, l), value(std::move(v)) {}
  Value value;
};
struct Name : Expr {
  Name(uint32_t l, SymbolId s) : Expr(ExprKind::kName, l), symbol(s) {}
  SymbolId symbol;
};
/// kList, kTuple, kConcat, kAnd, kOr; kNegate, kPlus and kNot have one operand. kDict: key, value, key, value, …
struct Operands : Expr {
  using Expr::Expr;
  std::vector<ExprPtr> operands;
};

enum class BinaryOp : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
/// kArithmetic: left to right. kCompare: Python's chained comparison.
struct Binary : Expr {
  using Expr::Expr;
  ExprPtr first;
  std::vector<std::pair<BinaryOp, ExprPtr>> rest;
};

/// value_0 if condition_0 else value_1 if condition_1 else … otherwise (null: undefined)
struct Conditional : Expr {
  explicit Conditional(uint32_t l) : Expr(ExprKind::kConditional, l) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> branches;  // value, condition
  ExprPtr otherwise;
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star, double_star;  // may be null
};

enum class LinkKind : uint8_t { kAttribute, kItem, kSlice, kCall, kFilter, kTest, kNegatedTest };
struct Link {
  LinkKind kind;
  uint32_t line;
  Value name;                            // of an attribute, filter or test: a string
  const Signature* signature = nullptr;  // of a filter or test; null if there is none of that name
  ExprPtr index;                         // of an item
  ExprPtr slice[3];                      // start, stop, step; each may be null
  CallArguments arguments;
};
struct Chain : Expr {
  explicit Chain(uint32_t l) : Expr(ExprKind::kChain, l) {}
  ExprPtr base;  // null: the captured text of a filter block or block set
  std::vector<Link> links;
};

/// What an assignment writes to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  uint32_t line = 0;
  SymbolId symbol = 0;
  std::optional<std::string> attribute;
  bool is_tuple = false;
  std::vector<Target> elements;
};

enum class StatementKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind k, uint32_t l) : kind(k), line(l) {}
  virtual ~Statement() = default;
  StatementKind kind;
  uint32_t line;
};
using Body = std::vector<std::unique_ptr<Statement>>;

struct TextStatement : Statement {
  TextStatement(uint32_t l, std::string t) : Statement(StatementKind::kText, l), text(std::move(t)) {}
  std::string text;
};
struct PrintStatement : Statement {
  explicit PrintStatement(uint32_t l) : Statement(StatementKind::kPrint, l) {}
  ExprPtr value;
};
struct IfStatement : Statement {
  explicit IfStatement(uint32_t l) : Statement(StatementKind::kIf, l) {}
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct ForStatement : Statement {
  explicit ForStatement(uint32_t l) : Statement(StatementKind::kFor, l) {}
  Target target;
  ExprPtr iterable, filter;  // filter may be null
  bool is_recursive = false;
  Body body, otherwise;
};
struct SetStatement : Statement {
  explicit SetStatement(uint32_t l) : Statement(StatementKind::kSet, l) {}
  Target target;
  ExprPtr value;
};
struct SetBlockStatement : Statement {
  explicit SetBlockStatement(uint32_t l) : Statement(StatementKind::kSetBlock, l) {}
  Target target;
  std::unique_ptr<Chain> filters;  // may be null
  Body body;
};

/// Parameters and body of a macro, or of the anonymous macro that a call block hands over as `caller`.
struct MacroDefinition {
  std::string name;
  std::vector<SymbolId> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Body body;
};
struct MacroStatement : Statement {
  explicit MacroStatement(uint32_t l) : Statement(StatementKind::kMacro, l) {}
  SymbolId symbol = 0;
  MacroDefinition macro;
};
struct CallBlockStatement : Statement {
  explicit CallBlockStatement(uint32_t l) : Statement(StatementKind::kCallBlock, l) {}
  MacroDefinition caller;
  std::unique_ptr<Chain> call;  // its last link is the call
};
struct FilterBlockStatement : Statement {
  explicit FilterBlockStatement(uint32_t l) : Statement(StatementKind::kFilterBlock, l) {}
  std::unique_ptr<Chain> filters;
  Body body;
};
struct WithStatement : Statement {
  explicit WithStatement(uint32_t l) : Statement(StatementKind::kWith, l) {}
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
};
/// A body with a scope of its own: generation, block, autoescape.
struct ScopeStatement : Statement {
  explicit ScopeStatement(uint32_t l) : Statement(StatementKind::kScope, l) {}
  bool sees_only_globals = false;  // a block that is not `scoped`
  Body body;
};

struct WellKnownSymbols {
  SymbolId loop, varargs, kwargs, caller;
};

struct Program {
  Body body;
  std::vector<std::string> symbols;
  std::vector<const Signature*> functions;  // per symbol: the global function of that name, or null
  WellKnownSymbols well_known;
};

}  // namespace honeycrisp::text::jinja
