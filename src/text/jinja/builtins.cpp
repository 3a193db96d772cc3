#include "text/jinja/builtins.h"

#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

#include <algorithm>

namespace honeycrisp::text::jinja {

const Signature* find_signature(std::span<const Signature> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Signature::name);
  return found != table.end() ? &*found : nullptr;
}

const Value* Arguments::find(std::string_view name) const {
  for (const auto& [key, value] : keyword) {
    if (key == name) return &value;
  }
  return nullptr;
}

BoundArguments::BoundArguments(const Signature& signature, Arguments& arguments)
    : signature_(signature), raw_(arguments) {
  if (signature.required == Signature::kVariadic) return;
  const auto& parameters = signature.parameters;
  const auto end = std::ranges::find(parameters, std::string_view());
  const auto count = static_cast<size_t>(end - parameters.begin());
  if (arguments.positional.size() > count) {
    raise("{}() takes at most {} argument(s) ({} given)", signature.name, count, arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keyword) {
    const auto parameter = static_cast<size_t>(std::find(parameters.begin(), end, name) - parameters.begin());
    if (parameter == count) raise("{}() got an unexpected keyword argument '{}'", signature.name, name);
    if (bound_[parameter] != nullptr) raise("{}() got multiple values for argument '{}'", signature.name, name);
    bound_[parameter] = &value;
  }
  for (size_t i = 0; i < static_cast<size_t>(signature.required); ++i) {
    if (bound_[i] == nullptr) raise("{}() missing required argument: '{}'", signature.name, parameters[i]);
  }
}

int64_t BoundArguments::integer(size_t i, std::optional<int64_t> fallback) const {
  if (!has(i)) return *fallback;
  const Value& value = *bound_[i];
  if (value.is_undefined()) raise_undefined(value);
  if (!value.is_integral())
    raise("{}(): '{}' must be an integer, not '{}'", signature_.name, signature_.parameters[i], type_name(value));
  return value.as_int();
}

bool BoundArguments::boolean(size_t i, bool fallback) const { return has(i) ? is_true(*bound_[i]) : fallback; }

TextPtr BoundArguments::text(size_t i) const {
  const Value& value = *bound_[i];
  if (value.is_undefined()) raise_undefined(value);
  if (!value.is_string())
    raise("{}(): '{}' must be a string, not '{}'", signature_.name, signature_.parameters[i], type_name(value));
  return value.text_ptr();
}

Value call_native(Runtime& runtime, const Signature& signature, Arguments& arguments) {
  const DepthGuard guard(runtime.budget());
  runtime.budget().step();
  BoundArguments bound(signature, arguments);
  return signature.native(runtime, bound);
}

std::tm Runtime::now() const {
  if (clock_) return clock_();
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

Value Runtime::call_filter(std::string_view name, Arguments& arguments) {
  const Signature* filter = find_filter(name);
  if (filter == nullptr) raise("no filter named {}", quote_string(name));
  return call_native(*this, *filter, arguments);
}

bool Runtime::call_test(std::string_view name, Arguments& arguments) {
  const Signature* test = find_test(name);
  if (test == nullptr) raise("no test named {}", quote_string(name));
  return is_true(call_native(*this, *test, arguments));
}

Value Runtime::make_namespace() {
  budget().elements(4);
  namespaces_.push_back(std::make_shared<Namespace>());
  return Value::object(Kind::kNamespace, namespaces_.back());
}

void Runtime::release_cycles() {
  for (const auto& ns : namespaces_) ns->attributes.clear();
  for (const Value& loop : loops_) loop.as<Loop>().last_changed.clear();
  namespaces_.clear();
  loops_.clear();
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  if (Value* old = find(name)) {
    *old = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

}  // namespace honeycrisp::text::jinja
