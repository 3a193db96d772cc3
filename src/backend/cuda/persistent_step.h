// The persistent kernel's state on the device, and its launches: up to eight generated rows a launch. Where the device
// or the program does not suit it, there is none, and steps run as graphs of kernels.
#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/encoder.h"
#include "backend/cuda/persistent_plan.h"
#include "backend/cuda/wide_step.h"

#include <span>

namespace honeycrisp::backend::cuda {

/// Why no program runs persistently on the device; empty: it may.
std::string persistent_device_obstacle(const DeviceInfo& device);

class PersistentStep {
 public:
  /// Of a program without obstacles. Error: out of memory, or no room in shared memory.
  static Result<PersistentStep> make(const program::Program& program, const CompileOptions& options,
                                     const Weights& weights, const KvCache& cache, const DeviceInfo& device,
                                     Stream stream);

  /// Device memory that it will hold, with what steps at the end of the context need.
  static Result<uint64_t> needed_bytes(const program::Program& program, const CompileOptions& options,
                                       const DeviceInfo& device);

  /// Before a step is issued while none is in flight: of a step that failed otherwise, nobody may have asked finish().
  Result<void> begin(Stream stream) { return hung() ? reset(stream) : Result<void>(); }
  /// Issues the step of `batch`, all of whose rows are generated, and whose inputs are in `rows`. `times`: waits for
  /// the step and adds its times; may be null.
  Result<void> issue(const Batch& batch, const StepRows& rows, const std::vector<const float*>& ropes, float* logits,
                     Stream stream, StepTimes* times);
  /// After a step, before what it wrote is used. Error: an exchange between the blocks hung, in this step or one that
  /// was issued since; none is in flight any longer.
  Result<void> finish(Stream stream);

  uint64_t memory_bytes() const {
    return planes_.bytes() + lists_.bytes() + arrivals_.bytes() + partials_.bytes() +
           (wide_ ? wide_->memory_bytes() : 0);
  }

 private:
  friend class WatchdogTest;
  bool hung() const { return *failed_.as<volatile uint32_t>() != 0; }
  Result<void> reset(Stream stream);
  Result<void> add_times(StepTimes& times, Stream stream);
  uint32_t rows_per_launch() const;

  /// The lists of one kernel, in device memory.
  struct Kernel {
    const StepOp* ops = nullptr;
    const StepPass* passes = nullptr;
    const uint32_t* pass_start = nullptr;
    const StepStage* stages = nullptr;
    const uint32_t* stage_start = nullptr;
    StepShared shared;
  };

  DeviceInfo device_;
  FormatSet formats_ = FormatSet::kOften;
  PersistentPlan plan_;  // without its lists
  std::array<Kernel, kRowCounts.size()> kernels_;
  DeviceMatrix embedding_;
  float embedding_scale_ = 1;
  uint32_t n_pools_ = 0;
  Memory planes_;                 // [2][kStepRows][plane]
  Memory lists_;                  // ops, passes, stages and where they start
  Memory arrivals_;               // [2][attentions][kStepRows][KV heads]
  Memory partials_;               // of attention, grown with the context
  Memory failed_;                 // host memory that kernels set
  Memory ends_;                   // StepArgs::ends, made when first asked for
  StepArgs args_;                 // what is the same for every launch
  std::optional<WideStep> wide_;  // for batches of many rows, where the executor takes such
  uint32_t set_ = 0;
  uint32_t used_rows_[2] = {0, 0};  // of each set: no longer poison
};

}  // namespace honeycrisp::backend::cuda
