// What the ops of the cpu backend have in common: an op is a few passes of the thread pool over independent items; a
// pass begins when all items of the one before are done. Ops do not know threads; the executor hands them ranges of
// items in any order.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/rope_tables.h"
#include "backend/cpu/state_store.h"

#include <memory>
#include <string>

namespace honeycrisp::backend::cpu {

/// f32 and activation memory that an op needs, per row of a batch or per thread. The executor allocates the largest of
/// all ops once.
struct Needs {
  size_t groups_per_row = 0;   // ActivationGroup: the input as integers
  size_t plain_per_row = 0;    // floats: the input as f32
  size_t outputs_per_row = 0;  // floats: outputs before an ending that needs the whole row
  size_t queries_per_row = 0;  // floats
  size_t indices_per_row = 0;
  size_t indices = 0;         // besides those of rows
  size_t panels_per_row = 1;  // in each of ThreadScratch::panels
  size_t thread_floats = 0;
  size_t softmax_floats = 0;  // per chunk of a KV head's queries, when chunks are computed apart

  void add(const Needs& other);
};

struct ThreadScratch {
  std::byte* groups;  // [Needs::groups_per_row]: one row's input, prepared by this thread for itself
  float* plain;       // [Needs::plain_per_row], the same
  float* panels[2];   // [max_rows · Needs::panels_per_row][16]
  float* floats;      // [Needs::thread_floats]
};

/// A row of the batch and whose it is: an index into StepState::runs.
struct SequenceRow {
  uint32_t row, run;
};
/// The rows that one sequence has in the step.
struct SequenceRun {
  uint32_t first, count;  // in StepState::rows_by_sequence
  uint32_t sequence;      // index into Batch::sequences
};

/// The running step.
struct StepState {
  const Isa* isa;
  const Isa::Integers* integers;  // of isa, for the activations of this run
  size_t group_bytes;             // of an ActivationGroup
  const Batch* batch;
  uint32_t n_rows;
  const uint32_t* logit_rows;  // [n_logit_rows] indices of the rows that want logits
  uint32_t n_logit_rows;
  uint32_t n_threads;
  uint32_t n_chunks;  // attention chunks of the last position in the batch

  // Rows grouped by sequence, in ascending positions; only if the program has recurrent layers.
  const SequenceRow* rows_by_sequence;  // [n_rows]
  const SequenceRun* runs;              // [n_runs]
  uint32_t n_runs;

  float* const* buffers;  // [Program::buffers] of [max_rows][width]
  const uint32_t* widths;
  std::byte* groups;
  float* plain;
  float* outputs;
  float* queries;
  uint32_t* indices;
  float* softmax;  // [items of few rows][n_chunks][Needs::softmax_floats]
  KvCache* cache;
  const StateStore* states;
  const RopeTables* ropes;
  float* logits;  // [n_logit_rows][vocabulary]

  float* row(const program::Slice& slice, size_t row) const {
    return buffers[slice.buffer] + row * widths[slice.buffer] + slice.column;
  }
};

class PackedWeights;

/// What kernels are made for. Without packed weights they can be looked at (a plan), but not run.
struct Target {
  const Isa& isa;
  const PackedWeights* packed = nullptr;
  Activations activations = Activations::k14Bit;
};

class OpKernel {
 public:
  virtual ~OpKernel() = default;

  virtual Needs needs() const = 0;
  virtual uint32_t n_passes() const = 0;
  /// What a thread does for itself before its first items of the pass. Reads nothing that the pass writes.
  virtual void enter(uint32_t, const StepState&, ThreadScratch&) const {}
  /// How many items the pass has; 0 skips it.
  virtual size_t n_items(uint32_t pass, const StepState& s) const = 0;
  virtual void run(uint32_t pass, size_t begin, size_t end, const StepState& s, ThreadScratch& t) const = 0;

  /// Bytes that the kernel itself holds.
  virtual uint64_t memory_bytes() const { return 0; }
  /// Formats and what else distinguishes the kernel, e.g. "q4_1+q8_0"; may be empty.
  virtual std::string variant() const { return {}; }
  virtual std::string why_not_fast() const { return {}; }
};

// One file each. The program must outlive the kernel. Errors: a format that cannot be multiplied.
Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const program::Embed& op,
                                              const Target& target);
Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const program::Project& op,
                                              const Target& target);
Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const program::Attend& op,
                                              const Target& target);
Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const program::DeltaNet& op,
                                              const Target& target);
Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const program::MixExperts& op,
                                              const Target& target);
Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const program::Logits& op,
                                              const Target& target);

/// Whether two slices have a column in common.
inline bool overlap(const program::Slice& a, const program::Slice& b) {
  return a.buffer == b.buffer && a.column < b.column + b.width && b.column < a.column + a.width;
}

/// Whether attention computes the chunks of a (row, KV head) pair on several threads. Never changes a bit.
inline bool splits_chunks(size_t n_pairs, const StepState& s) {
  return s.n_threads > 1 && s.n_chunks > 1 && n_pairs < 2 * size_t{s.n_threads};
}

}  // namespace honeycrisp::backend::cpu
