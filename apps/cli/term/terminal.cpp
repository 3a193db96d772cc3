#include "cli/term/terminal.h"

#include "base/text_escape.h"
#include "base/utf8.h"
#include "cli/term/interrupt.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/ioctl.h>
#include <sys/stat.h>

namespace honeycrisp::cli {
namespace {

const char* color_code(Color color) {
  switch (color) {
    case Color::kNone: return "";
    case Color::kRed: return "\x1b[31m";
    case Color::kYellow: return "\x1b[33m";
    case Color::kGreen: return "\x1b[32m";
    case Color::kDim: return "\x1b[2m";
    case Color::kBold: return "\x1b[1m";
  }
  return "";
}

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool same_place(int fd, int other) {
  struct stat one{}, two{};
  return ::fstat(fd, &one) == 0 && ::fstat(other, &two) == 0 && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

bool wants_color(int fd) {
  if (!is_terminal(fd)) return false;
  const char* no_color = std::getenv("NO_COLOR");  // https://no-color.org: set and not empty
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  return term != nullptr && *term != '\0' && std::strcmp(term, "dumb") != 0;
}

std::string colored(std::string_view text, Color color, int fd) {
  if (color == Color::kNone || !wants_color(fd)) return std::string(text);
  return color_code(color) + std::string(text) + "\x1b[0m";
}

size_t terminal_width(int fd) {
  struct winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(size_t(n));
  }
  return true;
}

std::string sanitize_for_terminal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = decode_utf8(text, i).length;
    if (text[i] == '\n' || text[i] == '\t')
      out += text[i];
    else
      out += escape_for_display(text.substr(i, length));
    i += length;
  }
  return out;
}

Result<void> Output::write(std::string_view bytes) {
  if (write_all(STDOUT_FILENO, bytes)) return {};
  if (errno == EPIPE) return Fail(ErrorCode::kCancelled, "");
  return fail(ErrorCode::kIo, "cannot write to standard output: {}", std::strerror(errno));
}

Result<void> Output::write_untrusted(std::string_view text) {
  return terminal_ ? write(sanitize_for_terminal(text)) : write(text);
}

Result<std::string> read_stdin(size_t limit) { return read_to_end(STDIN_FILENO, "standard input", limit); }

Result<std::string> read_to_end(int fd, const std::string& name, size_t limit) {
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && errno == EINTR && !interrupt_requested()) continue;
    if (n < 0 && errno == EINTR) return Fail(ErrorCode::kCancelled, "");
    if (n < 0) return fail(ErrorCode::kIo, "{}: cannot read: {}", name, std::strerror(errno));
    if (text.size() + size_t(n) > limit) return invalid("{} is longer than {} bytes", name, limit);
    text.append(buffer, size_t(n));
  }
}

}  // namespace honeycrisp::cli
