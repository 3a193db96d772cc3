// The values that only a render makes, and what functions, methods, filters and tests look like. Mutable state
// (namespaces, iterators, loops) belongs to one render, thus to one thread.
#pragma once

#include "text/jinja/value.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace honeycrisp::text::jinja {

class Runtime;
class BoundArguments;
struct MacroDefinition;
struct Scope;
struct ForStatement;

/// Why a value is undefined; the message is made only when somebody needs it.
struct UndefinedReason {
  std::string hint;           // the whole message, or empty:
  std::string type_name;      // "dict object", empty for a variable
  Value name;                 // string or index
  bool is_forbidden = false;  // the sandbox hides the attribute

  std::string message() const;
};

struct DictView {
  enum class Part { kKeys, kValues, kItems } part;
  Value dict;
};

struct Range {
  int64_t start, stop, step;
  uint64_t size() const;
  int64_t at(uint64_t index) const { return start + static_cast<int64_t>(index) * step; }
};

/// A Python generator or iterator whose elements are already known; reading it uses it up.
struct Iterator {
  std::string_view type_name;  // Python's
  std::vector<Value> items;
  size_t next = 0;
  uint32_t depth = 0;  // as Value::depth
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
  void set(std::string_view name, Value value);
};

struct Cycler {
  std::vector<Value> items;
  size_t position = 0;
  uint32_t depth = 0;
};

struct Joiner {
  TextPtr separator;
  bool used = false;
};

struct Loop {
  std::vector<Value> items;
  size_t index = 0;          // from 0
  size_t depth = 0;          // from 0, of recursive loops
  uint32_t value_depth = 0;  // as Value::depth
  bool has_last_changed = false;
  std::vector<Value> last_changed;
  const ForStatement* recursive = nullptr;  // set if the loop can be called
  std::shared_ptr<Scope> outer;             // where a recursive loop was written
};

struct Macro {
  const MacroDefinition* definition;
  std::shared_ptr<Scope> scope;  // where it was defined
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;

  const Value* find(std::string_view name) const;
};

using Native = Value (*)(Runtime&, BoundArguments&);

/// A function written in C++ with the parameters of its Python model. Filters and tests take the value they are
/// applied to as the first parameter, methods their object.
struct Signature {
  static constexpr size_t kMaxParameters = 7;
  static constexpr int kVariadic = -1;

  std::string_view name;
  Native native;
  int required;  // parameters without default; kVariadic: the function reads BoundArguments::raw itself
  std::array<std::string_view, kMaxParameters> parameters;  // "" ends them
};

/// A global function, or a method with its object.
struct Function {
  const Signature* signature;
  Value self;
  bool is_method = false;
};

}  // namespace honeycrisp::text::jinja
