// From ops to launches: which kernels run an op, for which rows, with which scratch memory. Decided once per program
// (plan), then encoded into a stream for every step. Knows nothing of batches' validity, graphs or host memory.
// MixExperts and DeltaNet are in encode_mixture.cpp and encode_delta_net.cpp.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/args.h"
#include "backend/cuda/delta_net_args.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kv_cache.h"
#include "backend/cuda/mixture_args.h"
#include "backend/cuda/state_store.h"
#include "backend/cuda/step_times.h"
#include "backend/cuda/weights.h"

#include <string>
#include <vector>

namespace honeycrisp::backend::cuda {

/// How a Project or Logits runs for generated rows.
enum class MatVecPath : uint8_t {
  kFused,   // packed tiles, ending included: a launch for neighbours of one format
  kEnding,  // products to memory, then the ending
};

/// How products of prompt rows run.
enum class PromptPath : uint8_t {
  kHalf,       // one f16 product (gemm_half.cu)
  kTwoHalves,  // both operands as two f16, three products (gemm_half.cu)
  kSplit,      // both operands split in two bf16, three products (gemm.cu)
};
PromptPath prompt_path(const program::Program& program, const DeviceInfo& device);
/// Why prompts of this program take three products although the device could do with one; empty: they take one, or it
/// could not.
std::string fine_prompts_reason(const program::Program& program, const DeviceInfo& device);

/// The rows of a step by role, in device memory.
struct StepRows {
  uint32_t n_rows = 0, n_positions = 0;  // n_positions: largest position + 1, rounded up as the launches need it
  const int32_t* tokens = nullptr;       // [n_rows]
  const uint32_t* positions = nullptr;
  const uint32_t* table_start = nullptr;  // [n_rows][pools]
  const uint32_t* tables = nullptr;
  RowList prompt, generated;                // rows of each role
  RowList prompt_logits, generated_logits;  // those that want logits, and where their logits go
  RunList runs;                             // the rows by sequence
};

/// Scratch and buffers of a step, by the most rows of a batch.
struct StepMemory {
  std::vector<uint32_t> widths;   // of the buffers
  std::vector<uint64_t> buffers;  // offsets
  uint64_t products = 0, plain_x = 0, queries = 0, query_scales = 0, partials = 0;
  uint64_t x_high = 0, x_low = 0, w_high = 0, w_low = 0;                  // of PromptPath::kSplit
  uint64_t x_half = 0, x_scales = 0, half_tiles = 0, half_exponents = 0;  // of the others
  uint32_t product_stride = 0;
  uint64_t slab_elements = 0;   // of the weights split, or made half tiles, at a time
  uint64_t partial_floats = 0;  // of attention
  // Of a mixture: scores, the choice, pairs sorted by expert, their hidden units and products, and the shared expert's.
  uint64_t scores = 0, experts = 0, expert_weights = 0, slots = 0, tiles = 0;
  uint64_t hidden = 0, pair_products = 0, shared_hidden = 0, shared_out = 0;
  uint32_t pair_stride = 0;
  uint64_t convolved = 0, gates = 0;  // of DeltaNet
  Layout layout;
};
void place_mixtures(const program::Program& program, uint64_t max_rows, StepMemory& memory);
void place_delta_nets(const program::Program& program, uint64_t max_rows, StepMemory& memory);
/// Slots that the pairs of a batch, sorted by expert, take at most.
uint64_t most_slots(const program::Program& program, uint64_t max_rows);

/// Error: an op that this backend cannot run.
Result<void> check_ops(const program::Program& program);
/// Positions that a sequence can have.
uint32_t context_length(const CompileOptions& options);
StepMemory place_step_memory(const program::Program& program, const CompileOptions& options, PromptPath prompts,
                             bool float_tiles);

MatVecPath mat_vec_path(const program::Program& program, const program::Step& step, const std::vector<bool>& packed);
/// Whether all of them are packed tiles of one format.
bool packed_alike(const program::Program& program, const std::vector<bool>& packed,
                  const std::vector<program::Matrix>& matrices);
/// Whether all of them are floats of one format in the file's layout, in rows of whole octets: they are multiplied in
/// one launch.
bool floats_alike(const program::Program& program, const std::vector<bool>& packed,
                  const std::vector<program::Matrix>& matrices);
bool unpacked_in_registers(const program::Program& program, const std::vector<bool>& packed, const program::Matrix& m);

/// Kernel, launches and reasons of a mixture for generated rows.
StepPlan plan_mixture(const program::Program& program, const program::MixExperts& op, const std::vector<bool>& packed);

/// What plan() shows: kernels and launches for one generated row. `obstacles`: what keeps each step from the persistent
/// kernel (persistent_plan.h).
std::vector<StepPlan> plan_steps(const program::Program& program, const std::vector<std::string>& obstacles);

class Encoder {
 public:
  Encoder(const program::Program& program, const Weights& weights, const KvCache& cache, const DeviceInfo& device,
          StepMemory places, const Memory& memory);

  /// Issues all launches of a step. `ropes`: tables of each rope, device memory; `logits`: [rows that want
  /// them][vocabulary]; `times`: marks all steps, may be null.
  Result<void> encode(const StepRows& rows, const std::vector<const float*>& ropes, float* logits, Stream stream,
                      StepTimes* times = nullptr) const;

 private:
  Result<void> run(const program::Embed& op, const StepRows& rows, Stream stream) const;
  Result<void> run(const program::Project& op, const program::Step& step, const StepRows& rows, Stream stream) const;
  Result<void> run(const program::Attend& op, const StepRows& rows, const std::vector<const float*>& ropes,
                   Stream stream) const;
  Result<void> run(const program::Logits& op, const program::Step& step, const StepRows& rows, float* logits,
                   Stream stream) const;
  Result<void> run(const program::DeltaNet& op, const StepRows& rows, Stream stream) const;
  Result<void> run(const program::MixExperts& op, const StepRows& rows, Stream stream) const;
  Result<void> mix(const program::MixExperts& op, const RowList& rows, bool prompt, Stream stream) const;
  Result<void> mix_pairs(const program::MixExperts& op, const ChoiceArgs& choice, const CombineArgs& combine,
                         Stream stream) const;
  SortedPairs place_sorted(uint32_t n_pairs, uint32_t n_experts, uint32_t slots) const;
  Result<void> multiply_pairs_in_halves(const program::MixExperts& op, const RowList& rows, const Pairs& pairs,
                                        Stream stream) const;
  Result<void> multiply_sorted(HalfGemmArgs args, const std::vector<program::Matrix>& matrices, Stream stream) const;
  Result<void> gate_pairs(const program::MixExperts& op, const Pairs& pairs, Stream stream) const;
  Result<void> multiply_shared(const program::SharedExpert& shared, const program::MixExperts& op, const RowList& rows,
                               bool prompt, Stream stream) const;

  /// What Project, Logits and shared experts have in common.
  struct Product {
    Rows in;
    uint32_t width;
    NormArgs norm;
    std::vector<program::Matrix> matrices;
    EndingArgs ending;
  };
  Result<void> multiply_generated(const Product& product, const RowList& rows, MatVecPath path, Stream stream) const;
  Result<void> multiply_floats(const Product& product, const RowList& rows, Stream stream) const;
  Result<void> multiply_prompt(const Product& product, const RowList& rows, Stream stream) const;
  Result<void> multiply_prompt_split(const Product& product, const RowList& rows, Stream stream) const;
  Result<void> multiply_prompt_in_halves(const Product& product, const RowList& rows, Stream stream) const;
  Result<void> multiply_half_tiles(HalfGemmArgs args, const program::Matrix& matrix, Stream stream) const;

  Rows rows_of(const program::Slice& slice) const;
  EndingArgs ending(const program::Project& op) const;

  const program::Program& program_;
  const Weights& weights_;
  const KvCache& cache_;
  const DeviceInfo& device_;
  PromptPath prompts_;
  StepMemory places_;
  const Memory& memory_;
};

}  // namespace honeycrisp::backend::cuda
