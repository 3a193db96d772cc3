#include "cli/term/messages.h"

#include "base/text_escape.h"
#include "cli/term/progress.h"
#include "cli/term/terminal.h"
#include <honeycrisp/log.h>

#include <array>
#include <atomic>
#include <unistd.h>

namespace honeycrisp::cli {
namespace {

constexpr size_t kLongestMessage = 4000;  // bytes; hostile names inside a message are cut earlier
std::atomic<bool> g_verbose{false}, g_quiet{false};

void print_line(std::string_view prefix, Color color, std::string_view message) {
  clear_progress_line();
  std::string line;
  if (!prefix.empty()) line = fmt::format("{}: ", colored("honeycrisp", color, STDERR_FILENO));
  if (prefix == "warning") line += "warning: ";
  line += escape_for_display(message, kLongestMessage);
  line += '\n';
  write_all(STDERR_FILENO, line);
}

}  // namespace

void print_error(std::string_view message) { print_line("error", Color::kRed, message); }
void print_warning(std::string_view message) { print_line("warning", Color::kYellow, message); }
void print_note(std::string_view message) {
  if (!g_quiet || g_verbose) print_line("", Color::kNone, message);
}

void set_verbose(bool verbose) { g_verbose = verbose; }
void set_quiet(bool quiet) { g_quiet = quiet; }

void install_log_handler() {
  set_log_handler([](LogLevel level, const std::string& message) {
    if (level == LogLevel::kWarning && (!g_quiet || g_verbose))
      print_warning(message);
    else if (g_verbose)
      print_note(message);
  });
}

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = double(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, kUnits[unit]);
}

}  // namespace honeycrisp::cli
