// Steps of more generated rows than the persistent kernel serves at once, as a kernel or two an op (wide_args.h): its
// plan's ops over places that are used again, and what the launches share out.
#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/encoder.h"
#include "backend/cuda/persistent_plan.h"
#include "backend/cuda/wide_args.h"

namespace honeycrisp::backend::cuda {

class WideStep {
 public:
  /// For batches of up to max_rows rows, of a plan whose weights are `weights`. Error: out of memory.
  static Result<WideStep> make(const program::Program& program, const PersistentPlan& plan, FormatSet formats,
                               const Weights& weights, const DeviceInfo& device, uint32_t max_rows);

  /// Whether the chunks of a group of rows at so many positions stay below their limit (chunk_memory.h).
  bool has_room(uint32_t n_positions) const;
  /// Device memory that it will hold, with what steps at the end of the context need.
  static Result<uint64_t> needed_bytes(const program::Program& program, const PersistentPlan& plan,
                                       const DeviceInfo& device, const CompileOptions& options);

  /// Issues the step of `batch`, all of whose rows are generated, and whose inputs are in `rows`. `args`: what StepArgs
  /// of every launch have in common. `times`: waits for the step and adds its times; may be null.
  Result<void> issue(const Batch& batch, const StepRows& rows, const StepArgs& args, float* logits, Stream stream,
                     StepTimes* times);

  uint64_t memory_bytes() const { return memory_.bytes() + partials_.bytes(); }

 private:
  struct Launch {
    uint32_t op = 0;
    WideProductArgs product;  // of a product: a range of its units, whose sums have room; n_slices = 0: it is none
  };

  uint64_t group_bytes(uint32_t n_chunks) const {
    return n_chunks == 1 ? 0 : kStepRows * n_chunks * chunk_floats_ * sizeof(float);
  }
  /// All but memory: `weights` may be null, for sizes. `starts`: of all launches' slices.
  static Result<WideStep> lay_out(const program::Program& program, const PersistentPlan& plan, const Weights* weights,
                                  const DeviceInfo& device, uint32_t max_rows, std::vector<uint32_t>& starts);
  std::vector<uint32_t> lower(const PersistentPlan& plan);
  /// Rows [first, first + n_rows) of the batch, up to kWideRows, whose logits begin with row `dest`.
  Result<void> issue_rows(const Batch& batch, uint32_t first, uint32_t n_rows, int32_t dest, const StepRows& rows,
                          const StepArgs& args, float* logits, Stream stream, StepTimes* times);
  /// Attention of all groups: `together` of them at a time, or one after another.
  Result<void> issue_attend(const WideRowsArgs& rows, const StepOp& op, uint32_t n_groups, uint64_t together,
                            bool in_turn, Stream stream);

  std::vector<StepOp> ops_;
  std::vector<uint32_t> steps_;  // of the program, of each op
  std::vector<Launch> launches_;
  FormatSet formats_ = FormatSet::kOften;
  DeviceMatrix embedding_;
  float embedding_scale_ = 1;
  uint32_t embedded_ = 0, plane_ = 0, n_attends_ = 0, most_kv_heads_ = 0, n_steps_ = 0, n_blocks_ = 0;
  uint64_t chunk_floats_ = 0;  // of attention: of one row and chunk
  Memory memory_;
  uint64_t planes_ = 0, sums_ = 0, squares_ = 0, counts_ = 0, slices_ = 0;  // offsets
  uint64_t count_bytes_ = 0, memory_bytes_ = 0;
  Memory partials_;  // of attention, grown with the context
};

}  // namespace honeycrisp::backend::cuda
