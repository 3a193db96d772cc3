// Ctrl-C. Outside an InterruptScope it ends the process at once with exit code 130, as it must while a model loads;
// inside one it only raises a flag, and whoever computes looks at the flag and finishes its line first.
// SIGPIPE and SIGXFSZ are ignored for the whole process: a write then fails with EPIPE, and the command ends quietly,
// or with EFBIG. A mapped file that can no longer be read (SIGBUS) ends it with a message and exit code 1.
#pragma once

namespace honeycrisp::cli {

/// Installs the handlers of all of these. Once, at start.
void install_signal_handlers();

/// Whether Ctrl-C has been pressed since the innermost scope began (or reset_interrupt()).
bool interrupt_requested();
void reset_interrupt();

/// While it lives, Ctrl-C raises the flag instead of ending the process. With `second_exits`, the second one ends the
/// process: whatever should have seen the flag is stuck.
class InterruptScope {
 public:
  explicit InterruptScope(bool second_exits);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  int previous_;
};

}  // namespace honeycrisp::cli
