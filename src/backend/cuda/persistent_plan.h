// From a program to what the persistent kernel runs: ops over places in a plane, each block's passes, and its stages of
// weights. Decided once per executor; runs on the host and knows nothing of batches or launches.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/kv_cache.h"
#include "backend/cuda/persistent_args.h"
#include "backend/cuda/weights.h"

#include <array>
#include <string>
#include <vector>

namespace honeycrisp::backend::cuda {

/// What keeps each step from the persistent kernel; all empty: the program runs there.
std::vector<std::string> persistent_obstacles(const program::Program& program, CacheType type);

/// The kernels there are, by the most rows of a launch.
inline constexpr std::array<uint32_t, 3> kRowCounts = {1, 4, 8};

/// What the blocks do, of a kernel of so many rows. shared.ring = 0: the program does not fit it.
struct StepLists {
  std::vector<StepOp> ops;
  std::vector<StepPass> passes;
  std::vector<uint32_t> pass_start;  // [blocks + 1]
  std::vector<StepStage> stages;
  std::vector<uint32_t> stage_start;  // [blocks]
  StepShared shared;
};

struct PersistentPlan {
  std::vector<StepOp> ops;                             // as kernels of several rows have them
  std::vector<uint32_t> steps;                         // of the program, of each op
  std::vector<std::vector<program::Matrix>> matrices;  // of each op's parts
  std::array<StepLists, kRowCounts.size()> lists;
  uint32_t plane = 0;     // floats of a row
  uint32_t embedded = 0;  // place of the embedding's output
  uint32_t head_dim = 0;  // StepArgs::head_dim
  uint32_t n_attends = 0, most_kv_heads = 0;
  uint64_t partial_floats = 0;  // of one row and chunk: the largest of all attentions
};

/// The set that has the formats of all products of a program without obstacles.
FormatSet format_set(const program::Program& program, CacheType type);
/// Of a program without obstacles. `shared_bytes`: dynamic shared memory of a block. Without weights and a cache it is
/// for sizes only.
Result<PersistentPlan> make_persistent_plan(const program::Program& program, CacheType type, const Weights* weights,
                                            const KvCache* cache, uint32_t n_blocks, uint32_t shared_bytes);

}  // namespace honeycrisp::backend::cuda
