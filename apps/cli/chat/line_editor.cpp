#include "cli/chat/line_editor.h"

#include "cli/models/paths.h"
#include "cli/term/interrupt.h"
#include "cli/term/terminal.h"

#include <cerrno>
#include <cstdio>
#include <cwchar>
#include <fcntl.h>
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

namespace honeycrisp::cli {
namespace {

constexpr int kHistorySize = 500;  // lines

}  // namespace

struct LineEditor::Impl {
  std::string prompt, history_path;
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string pending;  // bytes read beyond the last line, without an editor
  bool at_end = false;

  ~Impl() {
    if (editor != nullptr) el_end(editor);
    if (history != nullptr) history_end(history);
  }

  static char* prompt_of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<Impl*>(self)->prompt.data();
  }
  static int read_character(EditLine* editor, wchar_t* character);

  void start_editor();
  void load_history();
  Input read_edited();
  Input read_plain();
};

/// libedit's own reader goes on after a signal; ours lets Ctrl-C end the line. Returns 1, 0 at the end, -1 on a
/// failure.
int LineEditor::Impl::read_character(EditLine*, wchar_t* character) {
  std::mbstate_t state{};
  for (;;) {
    char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR && !interrupt_requested()) continue;
    if (n <= 0) return int(n);
    const size_t length = std::mbrtowc(character, &byte, 1, &state);
    if (length == size_t(-2)) continue;  // the character goes on
    if (length == size_t(-1)) *character = L'\xFFFD';
    return 1;
  }
}

void LineEditor::Impl::start_editor() {
  // On stderr: stdout has only what the model says, and may be a file.
  editor = el_init("honeycrisp", stdin, stderr, stderr);
  if (editor == nullptr) return;
  el_set(editor, EL_CLIENTDATA, this);
  el_set(editor, EL_PROMPT, &Impl::prompt_of);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 0);
  el_wset(editor, EL_GETCFN, &Impl::read_character);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  history = history_init();
  if (history == nullptr) return;
  HistEvent event;
  ::history(history, &event, H_SETSIZE, kHistorySize);
  ::history(history, &event, H_SETUNIQUE, 1);
  el_set(editor, EL_HIST, ::history, history);
  load_history();
}

void LineEditor::Impl::load_history() {
  if (history_path.empty()) return;
  const std::string folder = history_path.substr(0, history_path.rfind('/'));
  // Private before the first line is in it. Without a place to keep it, history lives as long as the program.
  const int fd = create_folders(folder) ? ::open(history_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0) {
    history_path.clear();
    return;
  }
  ::fchmod(fd, 0600);
  ::close(fd);
  HistEvent event;
  ::history(history, &event, H_LOAD, history_path.c_str());
}

LineEditor::Input LineEditor::Impl::read_edited() {
  int length = 0;
  el_resize(editor);  // the window may have changed during the answer
  const char* line = el_gets(editor, &length);
  if (interrupt_requested()) {
    const LineInfo* typed = el_line(editor);
    Input input{Status::kInterrupted, std::string(typed->buffer, size_t(typed->lastchar - typed->buffer))};
    el_reset(editor);
    write_all(STDERR_FILENO, "\n");
    return input;
  }
  if (line == nullptr || length <= 0) return {Status::kEnd, ""};
  std::string text(line, size_t(length));
  if (text.ends_with('\n')) text.pop_back();
  return {Status::kLine, std::move(text)};
}

LineEditor::Input LineEditor::Impl::read_plain() {
  for (;;) {
    if (const size_t end = pending.find('\n'); end != std::string::npos) {
      Input input{Status::kLine, pending.substr(0, end)};
      pending.erase(0, end + 1);
      return input;
    }
    if (at_end) {
      Input input{pending.empty() ? Status::kEnd : Status::kLine, std::move(pending)};
      pending.clear();
      return input;
    }
    char buffer[4096];
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) {
      if (interrupt_requested()) return {Status::kInterrupted, ""};
      continue;
    }
    if (n <= 0)
      at_end = true;
    else
      pending.append(buffer, size_t(n));
  }
}

LineEditor::LineEditor(std::string history_path) : impl_(std::make_unique<Impl>()) {
  impl_->history_path = std::move(history_path);
  if (is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO)) impl_->start_editor();
}

LineEditor::~LineEditor() = default;

bool LineEditor::interactive() const { return impl_->editor != nullptr; }

LineEditor::Input LineEditor::read(const std::string& prompt) {
  impl_->prompt = prompt;
  return interactive() ? impl_->read_edited() : impl_->read_plain();
}

void LineEditor::remember(const std::string& line) {
  if (impl_->history == nullptr || line.empty()) return;
  HistEvent event;
  history(impl_->history, &event, H_ENTER, line.c_str());
  if (!impl_->history_path.empty()) history(impl_->history, &event, H_SAVE, impl_->history_path.c_str());
}

}  // namespace honeycrisp::cli
