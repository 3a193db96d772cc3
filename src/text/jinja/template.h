// A chat template in the Jinja language, as Hugging Face `transformers` runs it: the immutable sandbox of Jinja 3.1
// with trim_blocks, lstrip_blocks, loop controls, the `generation` tag, json.dumps as `tojson`, raise_exception and
// strftime_now. Renders byte for byte what Python renders; what is left out fails by name (other templates: include,
// import, extends; autoescape; integers beyond 64 bits). Owns the template; knows nothing of messages or models.
#pragma once

#include "base/result.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"
#include "text/segment.h"

#include <ctime>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace honeycrisp::text::jinja {

struct Program;

struct RenderOptions {
  Limits limits;
  std::function<std::tm()> local_time;  // for strftime_now; empty: the clock of this machine
};

/// Immutable and thread safe; cheap to copy.
class Template {
 public:
  /// Errors: kInvalidInput, with the line and what was wrong there.
  static Result<Template> parse(std::string_view source);

  /// The output as pieces that are input or not (see mark_input); neighbours differ, none is empty.
  /// Needs about kMaxStackBytes + 64 KiB of stack. Errors:
  ///   kInvalidInput  the template called raise_exception; the message is its own, unchanged
  ///   kUnsupported   the template failed: "line N: …", with the message of the Python exception in its place
  ///   kOutOfMemory   a limit was reached
  Result<std::vector<Segment>> render(const Dict& variables, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace honeycrisp::text::jinja
