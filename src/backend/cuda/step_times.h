// Seconds of each step of the program while executors are asked to profile: events between launches of a stream.
#pragma once

#include "backend/cuda/args.h"
#include "backend/cuda/device.h"

#include <vector>

namespace honeycrisp::backend::cuda {

class StepTimes {
 public:
  /// Adds to seconds[n_steps].
  StepTimes(double* seconds, size_t n_steps) : seconds_(seconds), marks_(n_steps + 1) {}
  StepTimes(const StepTimes&) = delete;
  StepTimes& operator=(const StepTimes&) = delete;
  ~StepTimes();

  /// Before the first step's launches (0), and after those of step i (i + 1). Kernels on both sides do not overlap.
  Result<void> mark(size_t i, Stream stream);
  /// Once all marks have passed: adds what lies between those of steps [first, end).
  Result<void> add(size_t first, size_t end);
  void add_seconds(size_t step, double seconds) { seconds_[step] += seconds; }

 private:
  double* seconds_;
  std::vector<void*> marks_;  // events, made when first needed
};

}  // namespace honeycrisp::backend::cuda
