// Where text goes: whether a descriptor is a terminal and wants colours, writing all of it, and Output, the one way to
// stdout. stdout and stderr are judged separately. Knows nothing of what the text means.
#pragma once

#include "base/result.h"

#include <string>
#include <string_view>
#include <unistd.h>

namespace honeycrisp::cli {

enum class Color { kNone, kRed, kYellow, kGreen, kDim, kBold };

bool is_terminal(int fd);
/// Whether both lead to the same file, pipe or terminal: after `> file 2>&1`.
bool same_place(int fd, int other);
/// A terminal, and neither NO_COLOR (non-empty) nor TERM=dumb says otherwise.
bool wants_color(int fd);
/// `text` in a colour that is reset after it, or `text` itself if `fd` does not want colours.
std::string colored(std::string_view text, Color color, int fd);
/// Columns of the terminal; 80 if unknown.
size_t terminal_width(int fd);

/// Writes everything; false (with errno) if that is impossible. Continues after signals.
bool write_all(int fd, std::string_view bytes);

/// Text that may hold escape sequences made harmless for a terminal: control characters other than newline and tab
/// become visible escapes.
std::string sanitize_for_terminal(std::string_view text);

/// Standard output. When the reader has gone (EPIPE), write() fails with a silent kCancelled, which ends the command
/// with exit code 0: whoever closed the pipe has what they wanted. Other failures (a full disk) are errors.
class Output {
 public:
  Output() : terminal_(is_terminal(STDOUT_FILENO)) {}

  Result<void> write(std::string_view bytes);
  /// Text of a model or a file: sanitized if stdout is a terminal, else byte for byte.
  Result<void> write_untrusted(std::string_view text);
  bool terminal() const { return terminal_; }

 private:
  bool terminal_;
};

/// All that can be read, up to `limit` bytes; `name` is for messages. Errors: i/o, more than the limit, interrupted.
Result<std::string> read_to_end(int fd, const std::string& name, size_t limit);
Result<std::string> read_stdin(size_t limit);

}  // namespace honeycrisp::cli
