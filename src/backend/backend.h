// What a backend is: plan a Program (say what would run where), compile it (take the weights in), step a Batch.
// Owns the meaning of rows, pages and roles. Knows nothing of sequences' policies, sampling or text (src/engine does).
#pragma once

#include "base/result.h"
#include "program/program.h"
#include <honeycrisp/top_logits.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::backend {

using PageId = uint32_t;
inline constexpr PageId kNoPage = UINT32_MAX;
using StateId = uint32_t;
inline constexpr StateId kNoState = UINT32_MAX;

/// Whether a row is part of a given prompt or was generated. A GPU may use matrix units, with other bits, for prompts.
enum class Role : uint8_t { kPrompt, kGenerated };

enum class CacheType : uint8_t { kF16, kF32, kQ8_0 };
std::string_view to_string(CacheType type);
/// Bytes of `elements` values (a multiple of 32 for q8_0) in the cache.
uint64_t cache_bytes(CacheType type, uint64_t elements);
/// Whether every pool's heads are whole blocks of the type; the error names the sizes.
Result<void> check_cache_type(const program::Program& program, CacheType type);

/// How a backend that multiplies quantized weights as integers rounds the activations: to 14 bits per block of 32,
/// which leaves the answers as they are with f32, or to 8 bits, which is quicker for prompts and costs as much as many
/// a quantization of weights. A property of everything that an executor computes.
enum class Activations : uint8_t { k14Bit, k8Bit };
/// For backends that have no 8-bit activations; the error names the backend.
Result<void> check_exact_activations(Activations activations, std::string_view backend);

/// One position to compute.
struct Row {
  int32_t token = 0;      // 0 ≤ token < vocabulary: checked by the engine
  uint32_t position = 0;  // from 0
  uint32_t sequence = 0;  // index into Batch::sequences
  bool wants_logits = false;
  Role role = Role::kPrompt;
  uint8_t n_top = 0;  // of a row that wants logits: 0: all of them; 1..kMostTopLogits: only so many, the largest
};

/// Where a sequence's past lives. Keys and values: per pool, the page of each run of kPagePositions positions; entries
/// that a sliding window has passed may be kNoPage. Recurrent layers: one state for all of them, which a step advances
/// in place; it holds what the positions before the sequence's first row left, and is taken as zeros at position 0.
struct SequencePages {
  std::vector<std::span<const PageId>> tables;  // [pools][positions / kPagePositions]
  StateId state = kNoState;                     // needed only if the program has recurrent layers
};

/// Rows of a sequence appear in ascending, consecutive positions; rows of several sequences may follow each other.
/// Every page and state that a row writes or reads is present, and written by no other sequence. After a step that
/// failed the pages and states that it would have written are undefined.
struct Batch {
  std::span<const Row> rows;
  std::span<const SequencePages> sequences;
};

struct CompileOptions {
  CacheType cache_type = CacheType::kF16;
  Activations activations = Activations::k14Bit;
  uint32_t threads = 0;        // 0: the backend's default
  uint32_t max_rows = 512;     // most rows of a Batch
  uint32_t max_positions = 0;  // context length
  uint32_t n_choosable = 0;    // the first so many tokens may be among a row's largest logits; 0: all of the table's
  uint64_t memory_limit = 0;   // main memory for copies of weights; 0: not known
  std::string kernel_folder;   // where compiled kernels are kept for later runs; empty: nowhere
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes of weights taken in; may be empty
  /// Told of bytes of Weight::data that the executor has made its own copy of; may be empty.
  std::function<void(const std::byte* data, uint64_t bytes)> release_source;
};

/// CompileOptions::n_choosable, resolved.
uint32_t n_choosable(const program::Program& program, const CompileOptions& options);

/// How one step of the program runs on a backend.
struct StepPlan {
  std::string kernel;         // e.g. "project.q4_1.avx2"
  std::string why_not_fast;   // empty: the fast path
  uint32_t launches = 0;      // kernel launches on a GPU; passes of the thread pool on a CPU
  uint32_t barriers = 0;      // launches or passes that what follows waits for
  std::string prompt_kernel;  // where prompts have another; empty: the same
  /// "mat_vec_1, prompts mat_mul"
  std::string kernels() const { return prompt_kernel.empty() ? kernel : kernel + ", prompts " + prompt_kernel; }
};
struct Plan {
  std::string backend;          // name, device, instruction set
  std::vector<StepPlan> steps;  // parallel to Program::steps
  uint64_t buffer_bytes = 0;    // of activations and scratch for CompileOptions::max_rows; 0: not told
  uint64_t device_bytes = 0;    // that weights, cache and buffers together should stay below; 0: no such limit is known
};

/// What a device can do at most, as measured on it: what speeds are held against. 0: not known.
struct Ceilings {
  double read_bytes_per_second = 0;
  double operations_per_second = 0;  // of the arithmetic named here; a multiply-add is two
  std::string arithmetic;            // e.g. "int8, avx2"
};

/// A compiled program with its weights and its share of the KV cache. One caller at a time.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Makes pages [0, n_pages) of the pool exist. Error: out of memory, with the sizes.
  virtual Result<void> reserve_pages(uint32_t pool, uint32_t n_pages) = 0;
  /// Bytes of one page: all layers of the pool, keys and values.
  virtual uint64_t page_bytes(uint32_t pool) const = 0;
  /// Copies a page within its pool (fork in the middle of a page).
  virtual void copy_page(uint32_t pool, PageId from, PageId to) = 0;

  /// Makes recurrent states [0, n_states) exist. Error: out of memory, with the sizes.
  virtual Result<void> reserve_states(uint32_t n_states) = 0;
  /// Bytes of one state, all recurrent layers; 0 if the program has none.
  virtual uint64_t state_bytes() const = 0;
  virtual void copy_state(StateId from, StateId to) = 0;

  /// Computes the rows. Writes logits [rows that want all of them, in order][vocabulary] and top [rows that want the
  /// largest, in order].
  virtual Result<void> step(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) = 0;
  Result<void> step(const Batch& batch, std::span<float> logits) { return step(batch, logits, {}); }

  // Steps in flight: of one generated row of one sequence, issued without waiting for them, one position after another,
  // and collected in the same order. While any is in flight, only these, reserve_pages() and what tells sizes are
  // called.

  /// Most steps that may be issued and not yet collected; 0: this executor does not offer it.
  virtual uint32_t most_in_flight() const { return 0; }
  /// Issues a step of one row that wants its n_top largest logits, n_top > 0. `follows`: the row's token is the first
  /// of the largest logits of the step issued before, whatever Row::token says; so it is of all but the first step in
  /// flight. Error: this step was not issued; those in flight still are.
  virtual Result<void> issue(const Batch& batch, bool follows);
  /// Waits for the oldest step in flight and returns its largest logits. Error: what went wrong in it or since; no step
  /// is in flight any longer, and what those that were would have written is undefined.
  virtual Result<TopLogits> collect();

  /// Asked now and then inside the steps to come, where one takes long: true ends the step with kCancelled, which is a
  /// step that failed. Empty: nobody is asked. Backends whose steps are short may ask nobody.
  virtual void ask_to_stop(std::function<bool()> should_stop) { (void)should_stop; }

  /// Measures the ceilings now, with the threads or the device that compute: memory over about so many bytes of
  /// weights, or a buffer where there are none. Takes some 100 ms. Error: no memory for the buffer, or kUnsupported.
  virtual Result<Ceilings> measure_ceilings(uint64_t bytes);
  /// From now on every step() adds the seconds of each step of the program to seconds[Program::steps]; null ends that.
  /// Error: kUnsupported.
  virtual Result<void> profile(double* seconds);

  virtual const Plan& plan() const = 0;
  /// Bytes held besides the mapped file and the KV pages.
  virtual uint64_t memory_bytes() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // as in --backend
  virtual std::string describe() const = 0;   // device, instruction set, threads: one line
  /// Whether "auto" may choose it; else it runs only where it is named.
  virtual bool automatic() const { return true; }
  /// Whether it can run on this machine; the error says why not.
  virtual Result<void> available() const = 0;
  /// What would run where, without touching weights. Error: the program cannot run here at all.
  virtual Result<Plan> plan(const program::Program& program, const CompileOptions& options) const = 0;
  /// `program` must outlive the executor.
  virtual Result<std::unique_ptr<Executor>> compile(const program::Program& program,
                                                    const CompileOptions& options) const = 0;
};

}  // namespace honeycrisp::backend
