// A one-line progress bar on stderr, drawn only where stderr is a terminal, with carriage returns and blanks alone: no
// escape sequence, so that it is right on a dumb terminal too. One bar at a time; messages clear it first.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace honeycrisp::cli {

class ProgressBar {
 public:
  enum class Rate { kNone, kBytesPerSecond };

  /// `label` is what is going on, e.g. "loading". Nothing is drawn in the first `delay` (quick work shows no bar).
  ProgressBar(std::string label, Rate rate, std::chrono::milliseconds delay);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws at most ten times a second. `total` unknown: no bar and no time left, only what is done.
  void update(uint64_t done, std::optional<uint64_t> total);

 private:
  using Clock = std::chrono::steady_clock;
  std::string text(uint64_t done, std::optional<uint64_t> total, size_t width) const;

  std::string label_;
  Rate rate_;
  bool enabled_;
  Clock::time_point drawn_;
  Clock::time_point rate_at_;  // the speed is measured between redraws and smoothed
  uint64_t rate_from_ = 0;
  double bytes_per_second_ = 0;
  bool started_ = false;
};

/// Blanks the bar's line, if there is one; called before any other line on stderr.
void clear_progress_line();

}  // namespace honeycrisp::cli
