#include "text/jinja/template.h"

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

#include <new>

namespace honeycrisp::text::jinja {
namespace {

std::vector<Segment> to_segments(const Text& text) {
  std::vector<Segment> segments;
  const auto add = [&](size_t begin, size_t end, bool is_input) {
    if (begin < end) segments.push_back({std::string(text.bytes().substr(begin, end - begin)), is_input});
  };
  size_t at = 0;
  for (const ByteRange& range : text.input()) {
    add(at, range.begin, false);
    add(range.begin, range.end, true);
    at = range.end;
  }
  add(at, text.size(), false);
  return segments;
}

tl::unexpected<Error> to_error(const Failure& failure, uint32_t line) {
  if (failure.is_raised_by_template) return Fail(failure.code, failure.message);
  return Fail(failure.code, fmt::format("line {}: {}", line, failure.message));
}

}  // namespace

Result<Template> Template::parse(std::string_view source) {
  uint32_t line = 1;
  try {
    return Template(std::make_shared<const Program>(parse_program(source, line)));
  } catch (const Failure& failure) {
    return to_error({ErrorCode::kInvalidInput, failure.message}, line);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "line {}: out of memory while the template was parsed", line);
  }
}

Result<std::vector<Segment>> Template::render(const Dict& variables, const RenderOptions& options) const {
  try {
    Interpreter interpreter(*program_, variables, options.limits, options.local_time);
    try {
      return to_segments(*interpreter.run());
    } catch (const Failure& failure) {
      return to_error(failure, interpreter.line());
    }
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "out of memory while the template was rendered");
  }
}

}  // namespace honeycrisp::text::jinja
