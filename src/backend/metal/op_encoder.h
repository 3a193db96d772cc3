// What every op's encode function is given, and the list of those functions: one file per op (project.cpp, attend.cpp,
// …) puts the op's launches into a StepEncoder. Owns the meaning of rows, slices and views; knows nothing of the step's
// course (executor.cpp) or of how memory is had.
#pragma once

#include "backend/backend.h"
#include "backend/metal/pipelines.h"
#include "backend/metal/step_encoder.h"

#include <optional>

namespace honeycrisp::backend::metal {

/// Rows [0, n) of the buffers, all of one role and of each sequence one run. Other batches are several parts in the
/// order of their rows, one after the other in the same command buffer; each part has buffers' rows from 0.
struct PartRows {
  uint32_t n = 0;
  Role role = Role::kPrompt;
  uint32_t n_positions = 0;  // largest position + 1
  /// Neighbouring rows of one sequence: [first_row, first_row + n_rows), ascending positions.
  struct Run {
    uint32_t first_row = 0, n_rows = 0, first_position = 0;
  };
  std::vector<Run> runs;
  View tokens;       // int32 [n]
  View positions;    // uint32 [n]
  View table_start;  // uint32 [n][pools]: where the row's page table of each pool begins in `tables`
  View tables;       // uint32
  View states;       // uint32 [n]: recurrent state of the row's sequence
  View logit_rows;   // uint32 [n_logits]: rows that want logits
  uint32_t n_logits = 0;
  View logits;  // f32 [n_logits][vocabulary]
};

/// One layer's cache. A page holds [KV heads]{keys [64][key_dim], values [64][value_dim]}; q8_0 sections hold all codes
/// first, then the f16 scales [64][dim / 32]. Every section begins at a multiple of 16 bytes.
struct CacheView {
  View pages;  // of the layer, one buffer
  uint64_t page_bytes = 0, head_bytes = 0, value_offset = 0;
  CacheType type = CacheType::kF16;
};

/// Recurrent states of one layer: state s begins at byte s · state_bytes of `states`, with [heads][key_dim][value_dim]
/// and then the history [kernel_size − 1][channels], f32.
struct StateView {
  View states;
  uint64_t state_bytes = 0;
};

/// A matrix in the file's layout, in the mapped file or a copy of it.
struct WeightView {
  View view;  // from the matrix's first row of slice 0 on, to the end of its last row
  uint64_t row_bytes = 0;
  uint64_t slice_bytes = 0;  // from one expert to the next
};

/// Where things are in device memory; implemented by the executor.
class Places {
 public:
  virtual ~Places() = default;
  virtual View buffer(program::BufferId) const = 0;  // f32 [rows][width]
  virtual WeightView weight(const program::Matrix&) const = 0;
  virtual View vector(program::VectorId) const = 0;
  virtual View rope(program::RopeId) const = 0;  // f32 [positions][pairs]{cos, sin}
  virtual CacheView cache(program::CacheId) const = 0;
  virtual StateView state(program::StateId) const = 0;
  /// Memory for the time of the step, of a power-of-two class; freed for later ops when `release`d, in any order.
  virtual Result<View> scratch(uint64_t bytes) = 0;
  virtual void release(const View&) = 0;
};

/// A residual whose post-norm needs the whole row of y: x = residual_scale · (x + branch_scale · norm(y)) waits for the
/// beginning of the next launch that reads x, or for flush_residual().
struct PendingResidual {
  program::Residual ending;
  View y;  // f32 [rows][width]: scratch
};

struct OpContext {
  const program::Program& program;
  Pipelines& pipelines;
  StepEncoder& encoder;
  Places& places;
  const PartRows& rows;
  std::optional<PendingResidual> pending;
};

Result<void> encode(OpContext&, const program::Embed&);
Result<void> encode(OpContext&, const program::Project&);
Result<void> encode(OpContext&, const program::Attend&);
Result<void> encode(OpContext&, const program::DeltaNet&);
Result<void> encode(OpContext&, const program::MixExperts&);
Result<void> encode(OpContext&, const program::Logits&);
/// Ends what waits in `pending`, if anything does: by a launch of its own, for ops that cannot take it with them.
Result<void> flush_residual(OpContext&);

/// Empty, or why this device code cannot run the op at all (printed, and the op goes to `reference` or the model is
/// refused).
std::string obstacle(const program::Program&, const program::Embed&);
std::string obstacle(const program::Program&, const program::Project&);
std::string obstacle(const program::Program&, const program::Attend&, CacheType);
std::string obstacle(const program::Program&, const program::DeltaNet&);
std::string obstacle(const program::Program&, const program::MixExperts&);
std::string obstacle(const program::Program&, const program::Logits&);

}  // namespace honeycrisp::backend::metal
