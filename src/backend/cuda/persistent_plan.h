// From a program to what the persistent kernel runs: ops over places in a plane, each block's passes, and each warp's
// spans of weights. Decided once per executor; runs on the host and knows nothing of batches or launches.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/kv_cache.h"
#include "backend/cuda/persistent_args.h"
#include "backend/cuda/weights.h"

#include <string>
#include <vector>

namespace honeycrisp::backend::cuda {

/// What keeps each step from the persistent kernel; all empty: the program runs there.
std::vector<std::string> persistent_obstacles(const program::Program& program, CacheType type);

struct PersistentPlan {
  std::vector<StepOp> ops;
  std::vector<StepPass> passes;
  std::vector<uint32_t> pass_start;  // [blocks + 1]
  std::vector<StepSpan> spans;
  std::vector<uint32_t> span_start;  // [blocks][kStepWarps]
  uint32_t plane = 0;                // floats of a row
  uint32_t embedded = 0;             // place of the embedding's output
  uint32_t head_dim = 0;             // StepArgs::head_dim
  uint32_t n_attends = 0, most_kv_heads = 0;
  uint64_t partial_floats = 0;  // of one row and chunk: the largest of all attentions
  StepShared one, four, eight;  // by the kernel's rows; ring = 0: it does not fit
};

/// Of a program without obstacles. `shared_bytes`: dynamic shared memory of a block.
Result<PersistentPlan> make_persistent_plan(const program::Program& program, CacheType type, const Weights& weights,
                                            const KvCache& cache, uint32_t n_blocks, uint32_t shared_bytes);

}  // namespace honeycrisp::backend::cuda
