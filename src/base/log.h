// Messages that are not errors: what path was chosen, what was ignored, what looks wrong.
// The library hands them to one handler and never prints by itself; applications install the handler.
#pragma once

#include <honeycrisp/log.h>

#include <fmt/format.h>

namespace honeycrisp {

/// Hands one finished line to the installed handler; thread safe.
void log_message(LogLevel level, const std::string& message);

template <class... A>
void log_info(fmt::format_string<A...> f, A&&... args) {
  log_message(LogLevel::kInfo, fmt::format(f, std::forward<A>(args)...));
}
template <class... A>
void log_warning(fmt::format_string<A...> f, A&&... args) {
  log_message(LogLevel::kWarning, fmt::format(f, std::forward<A>(args)...));
}

}  // namespace honeycrisp
