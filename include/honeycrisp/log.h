// Where the library's notes and warnings go.
#pragma once

#include <functional>
#include <string>

namespace honeycrisp {

enum class LogLevel { kInfo, kWarning };
using LogHandler = std::function<void(LogLevel, const std::string& message)>;

/// Installs the process-wide handler of notes and warnings (empty: they are dropped). The library never prints
/// by itself. May be called from any thread; the handler may be called from any thread, one call at a time.
void set_log_handler(LogHandler handler);

}  // namespace honeycrisp
