#include "backend/cuda/step_times.h"

#include <cuda_runtime_api.h>

namespace honeycrisp::backend::cuda {
namespace {

cudaEvent_t event(void* mark) { return static_cast<cudaEvent_t>(mark); }

}  // namespace

StepTimes::~StepTimes() {
  for (void* mark : marks_)
    if (mark != nullptr) (void)cudaEventDestroy(event(mark));
}

Result<void> StepTimes::mark(size_t i, Stream stream) {
  if (marks_[i] == nullptr) {
    cudaEvent_t made = nullptr;
    HC_TRY(check_cuda(cudaEventCreate(&made), "making an event"));
    marks_[i] = made;
  }
  return check_cuda(cudaEventRecord(event(marks_[i]), stream), "marking a time");
}

Result<void> StepTimes::add(size_t first, size_t end) {
  for (size_t step = first; step < end; ++step) {
    float milliseconds = 0;
    HC_TRY(check_cuda(cudaEventElapsedTime(&milliseconds, event(marks_[step]), event(marks_[step + 1])),
                      "reading the time of a step"));
    seconds_[step] += double(milliseconds) / 1e3;
  }
  return {};
}

}  // namespace honeycrisp::backend::cuda
