// Python's str operations, shared by the methods of strings and the filters. Marks of input survive all of them.
#pragma once

#include "text/jinja/runtime.h"

#include <optional>
#include <string_view>
#include <vector>

namespace honeycrisp::text::jinja {

/// Like std::string_view::find, in linear time whatever the needle.
size_t find_bytes(std::string_view text, std::string_view needle, size_t from);
std::string_view strip_spaces(std::string_view text);

enum class Side { kLeft = 1, kRight = 2, kBoth = 3 };
/// `characters` null: white space.
TextPtr strip(Runtime& runtime, const TextPtr& text, Side side, const Text* characters);

/// `separator` null: runs of white space. `limit` < 0: no limit.
std::vector<Value> split(Runtime& runtime, const TextPtr& text, const Text* separator, int64_t limit);
std::vector<Value> split_from_right(Runtime& runtime, const TextPtr& text, const Text* separator, int64_t limit);
std::vector<Value> split_lines(Runtime& runtime, const TextPtr& text, bool keeps_ends);

/// At most `count` replacements; < 0: all.
TextPtr replace(Runtime& runtime, const TextPtr& text, const Text& old_text, const Text& new_text, int64_t count);

/// kTitle: str.title. kWords: Jinja's filter of that name, where a word begins after one of - ( { [ < and white space.
enum class Case { kUpper, kLower, kTitle, kWords, kCapitalize, kSwap };
TextPtr change_case(Runtime& runtime, const TextPtr& text, Case mode);

enum class Align { kLeft, kRight, kCenter };
/// Pads to `width` code points; `fill` is one code point.
TextPtr pad(Runtime& runtime, const TextPtr& text, int64_t width, Align align, const Text& fill);

/// text % arguments
Value format_percent(Runtime& runtime, const Text& text, const Value& arguments);
/// text.format(...), or format_map with `arguments.keyword` only
Value format_braces(Runtime& runtime, const Text& text, const Arguments& arguments);

}  // namespace honeycrisp::text::jinja
