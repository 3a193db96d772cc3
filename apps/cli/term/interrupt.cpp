#include "cli/term/interrupt.h"

#include "cli/command.h"

#include <csignal>
#include <unistd.h>

namespace honeycrisp::cli {
namespace {

enum Mode : int { kExit = 0, kFlagThenExit = 1, kFlagOnly = 2 };

volatile std::sig_atomic_t g_mode = kExit;
volatile std::sig_atomic_t g_requested = 0;

extern "C" void on_interrupt(int) {
  const bool end_now = g_mode == kExit || (g_mode == kFlagThenExit && g_requested != 0);
  g_requested = 1;
  if (end_now) ::_exit(kExitInterrupted);
}

// A page of a mapped file that cannot be read: the file was cut short, or its disk failed. Which file cannot be asked
// here: a model's, or one that the program itself was loaded from. There is no going on, but
// the user learns why. Any other SIGBUS is a fault of ours: returning with the default action repeats it and dies of
// it.
extern "C" void on_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {
    ::signal(signal, SIG_DFL);
    return;
  }
  constexpr char kMessage[] =
      "honeycrisp: a mapped file was cut short or cannot be read any more: the model's (--no-mmap reads it into memory "
      "first), or one of the program's own\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  ::_exit(kExitError);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_handler = on_interrupt;  // no SA_RESTART: a blocked read must return
  ::sigaction(SIGINT, &action, nullptr);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
  ::sigaction(SIGXFSZ, &action, nullptr);  // a limit on the size of files becomes an error of write()
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = on_bus_error;
  ::sigaction(SIGBUS, &action, nullptr);
}

bool interrupt_requested() { return g_requested != 0; }
void reset_interrupt() { g_requested = 0; }

InterruptScope::InterruptScope(bool second_exits) : previous_(g_mode) {
  reset_interrupt();
  g_mode = second_exits ? kFlagThenExit : kFlagOnly;
}
InterruptScope::~InterruptScope() { g_mode = previous_; }

}  // namespace honeycrisp::cli
