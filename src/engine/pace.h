// How many rows a batch may have so that whoever may want to stop is asked about four times a second.
// Learns from the batches that ran; knows nothing of what they compute. Thread rule: one caller at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace honeycrisp::engine {

class Pace {
 public:
  /// Fewer rows than this read the weights too often for the arithmetic that they share.
  static constexpr uint32_t kFewestRows = 64;
  static constexpr double kSeconds = 0.25;

  /// At most `most`, kFewestRows before anything was measured.
  uint32_t rows(uint32_t most) const { return std::min(most, rows_); }
  void measured(uint32_t rows, double seconds) {
    if (rows < kFewestRows) return;  // a rest, which says little of a full batch
    const double fitting = seconds > 0 ? rows * (kSeconds / seconds) : kMostRows;
    rows_ = uint32_t(std::clamp<double>(fitting, kFewestRows, kMostRows)) / kFewestRows * kFewestRows;
  }

 private:
  static constexpr uint32_t kMostRows = 1 << 20;
  uint32_t rows_ = kFewestRows;
};

}  // namespace honeycrisp::engine
