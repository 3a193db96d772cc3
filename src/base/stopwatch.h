// Wall-clock time since it was made.
#pragma once

#include <chrono>

namespace honeycrisp {

class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  Clock::time_point start_ = Clock::now();
};

}  // namespace honeycrisp
