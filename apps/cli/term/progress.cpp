#include "cli/term/progress.h"

#include "base/text_escape.h"
#include "cli/term/messages.h"
#include "cli/term/terminal.h"

#include <algorithm>
#include <fmt/format.h>
#include <mutex>
#include <unistd.h>

namespace honeycrisp::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr size_t kBarWidth = 24;

std::mutex g_mutex;
size_t g_drawn_columns = 0;

void replace_line(const std::string& text, size_t columns) {
  std::string line = "\r" + text;
  if (g_drawn_columns > columns) line += std::string(g_drawn_columns - columns, ' ');
  if (columns == 0) line += '\r';
  write_all(STDERR_FILENO, line);
  g_drawn_columns = columns;
}

std::string duration(double seconds) {
  const auto s = uint64_t(std::min(seconds, 359999.0));
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

void clear_progress_line() {
  const std::lock_guard lock(g_mutex);
  if (g_drawn_columns > 0) replace_line("", 0);
}

ProgressBar::ProgressBar(std::string label, Rate rate, std::chrono::milliseconds delay)
    : label_(escape_for_display(label, 60)), rate_(rate), enabled_(is_terminal(STDERR_FILENO)) {
  drawn_ = Clock::now() + delay - kRedraw;
}

ProgressBar::~ProgressBar() { clear_progress_line(); }

void ProgressBar::update(uint64_t done, std::optional<uint64_t> total) {
  if (!enabled_) return;
  const auto now = Clock::now();
  if (!started_) {
    started_ = true;
    rate_at_ = now;
    rate_from_ = done;
  }
  if (now - drawn_ < kRedraw) return;
  const double elapsed = std::chrono::duration<double>(now - rate_at_).count();
  if (elapsed > 0 && done >= rate_from_) {
    const double current = double(done - rate_from_) / elapsed;
    bytes_per_second_ = bytes_per_second_ == 0 ? current : 0.8 * bytes_per_second_ + 0.2 * current;
  }
  rate_at_ = drawn_ = now;
  rate_from_ = done;
  const std::lock_guard lock(g_mutex);
  const std::string line = text(done, total, terminal_width(STDERR_FILENO));
  replace_line(line, line.size());
}

std::string ProgressBar::text(uint64_t done, std::optional<uint64_t> total, size_t width) const {
  std::string line = label_;
  if (total && *total > 0) {
    const double part = std::min(1.0, double(done) / double(*total));
    const auto filled = size_t(part * double(kBarWidth));
    line += fmt::format(" [{:#<{}}{:.<{}}] {:3.0f} %", "", filled, "", kBarWidth - filled, part * 100);
  }
  if (rate_ == Rate::kBytesPerSecond) {
    line += total ? fmt::format("  {} of {}", human_bytes(done), human_bytes(*total)) : "  " + human_bytes(done);
    if (bytes_per_second_ > 0) {
      line += fmt::format("  {}/s", human_bytes(uint64_t(bytes_per_second_)));
      if (total && *total >= done) line += "  " + duration(double(*total - done) / bytes_per_second_) + " left";
    }
  }
  if (line.size() >= width) line.resize(width > 1 ? width - 1 : 0);  // a wrapped line could not be drawn over
  return line;
}

}  // namespace honeycrisp::cli
