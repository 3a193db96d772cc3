// Tokens to a Program. Owns the grammar; knows the names of filters, tests and global functions, not what they do.
#pragma once

#include "text/jinja/ast.h"

#include <string_view>

namespace honeycrisp::text::jinja {

/// Throws Failure; `line` then holds the place.
Program parse_program(std::string_view source, uint32_t& line);

}  // namespace honeycrisp::text::jinja
