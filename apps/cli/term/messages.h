// What goes to stderr as whole lines: errors, warnings, notes. Each is one line that starts with "honeycrisp:", made
// safe to show whatever a file or server put into it.
#pragma once

#include <fmt/format.h>
#include <string>
#include <string_view>

namespace honeycrisp::cli {

/// "honeycrisp: message"; colours only where stderr is a terminal that wants them.
void print_error(std::string_view message);
void print_warning(std::string_view message);
/// The message alone, for what the user asked to see (speed, progress in words).
void print_note(std::string_view message);

/// Sends the library's warnings to stderr, and its notes too once set_verbose(true).
void install_log_handler();
void set_verbose(bool verbose);
/// Whether warnings and notes are left out (verbose wins).
void set_quiet(bool quiet);

/// "98.4 MB": decimal units, three digits.
std::string human_bytes(uint64_t bytes);

}  // namespace honeycrisp::cli
