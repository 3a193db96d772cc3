// Global functions of a template: those of Jinja, and raise_exception and strftime_now that `transformers` adds.
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/runtime.h"

#include <array>
#include <ctime>

namespace honeycrisp::text::jinja {
namespace {

using Bound = BoundArguments;
constexpr uint64_t kMaxRange = 100'000;  // MAX_RANGE of Jinja's sandbox

Value make_range(Runtime&, Bound& a) {
  const bool has_start = a.has(1);
  Range range{has_start ? a.integer(0) : 0, a.integer(has_start ? 1 : 0), a.integer(2, 1)};
  if (range.step == 0) raise("range() arg 3 must not be zero");
  if (range.size() > kMaxRange) {
    raise("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  }
  return Value::object(Kind::kRange, std::make_shared<Range>(range));
}

/// Entries of dict(mapping or pairs, key=value, …)
Dict make_entries(Runtime& r, Bound& a) {
  if (a.raw().positional.size() > 1) raise("dict expected at most 1 argument, got {}", a.raw().positional.size());
  Dict dict;
  if (!a.raw().positional.empty()) {
    const Value& source = a.raw().positional.front();
    if (source.is(Kind::kDict)) {
      dict = source.as_dict();
    } else {
      for (const Value& pair : iterate(r, source)) {
        std::vector<Value> parts = iterate(r, pair);
        if (parts.size() != 2) raise("dictionary update sequence element has length {}; 2 is required", parts.size());
        set_item(dict, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : a.raw().keyword) dict.set(Value(name), value);
  return dict;
}

Value new_dict(Runtime& r, Bound& a) { return dict_value(r, make_entries(r, a)); }

Value new_namespace(Runtime& r, Bound& a) {
  const Value result = r.make_namespace();
  const Dict attributes = make_entries(r, a);
  for (const auto& [key, value] : attributes.entries()) {
    if (key.is_string()) result.as<Namespace>().set(key.as_text().bytes(), value);
  }
  return result;
}

Value new_cycler(Runtime&, Bound& a) {
  if (a.raw().positional.empty()) raise("at least one item has to be provided");
  uint32_t depth = 0;
  for (const Value& item : a.raw().positional) depth = std::max(depth, item.depth());
  if (depth >= kMaxValueDepth) raise("a value is nested more than {} levels deep", kMaxValueDepth);
  return Value::object(Kind::kCycler, std::make_shared<Cycler>(Cycler{a.raw().positional, 0, depth + 1}));
}

Value new_joiner(Runtime& r, Bound& a) {
  return Value::object(Kind::kJoiner, std::make_shared<Joiner>(Joiner{to_text(r, a.get(0, Value(", ")))}));
}

Value raise_exception(Runtime& r, Bound& a) {
  throw Failure{ErrorCode::kInvalidInput, std::string(to_text(r, a[0])->bytes()), true};
}

Value strftime_now(Runtime& r, Bound& a) {
  // %f, %z and %Z as of a datetime without time zone, which Python's now() gives; C knows no %f.
  std::string format;
  const std::string given(a.text(0)->bytes());
  for (size_t i = 0; i < given.size(); ++i) {
    const char next = i + 1 < given.size() ? given[i + 1] : '\0';
    if (given[i] != '%' || next == '\0') {
      if (given[i] != '\0') format += given[i];
    } else if (next == 'f') {
      format += "000000";
      ++i;
    } else if (next == 'z' || next == 'Z') {
      ++i;
    } else {
      format += {'%', next};
      ++i;
    }
  }
  if (format.empty()) return "";
  const std::tm now = r.now();
  std::array<char, 4096> buffer{};
  const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now);
  if (size == 0) raise("strftime_now: the format is too long or empty");
  TextBuilder out(r.budget());
  out.append(std::string_view(buffer.data(), size));
  return out.finish();
}

constexpr Signature kFunctions[] = {
    {"range", make_range, 1, {"start", "stop", "step"}},
    {"dict", new_dict, Signature::kVariadic, {}},
    {"namespace", new_namespace, Signature::kVariadic, {}},
    {"cycler", new_cycler, Signature::kVariadic, {}},
    {"joiner", new_joiner, 0, {"sep"}},
    {"raise_exception", raise_exception, 1, {"message"}},
    {"strftime_now", strftime_now, 1, {"format"}},
};

}  // namespace

const Signature* find_function(std::string_view name) { return find_signature(kFunctions, name); }

}  // namespace honeycrisp::text::jinja
