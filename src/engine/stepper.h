// Turns the missing tokens of several sequences into batches of at most `chunk` rows and runs them on the executor.
// Owns the batch buffers, the way results travel from a batch to their owners, and what is computed ahead of its being
// asked for.
// Knows nothing of sessions, text or sampling. Thread rule: one caller at a time (the engine's lock).
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "engine/sequence.h"

#include <cstdint>
#include <span>
#include <vector>

namespace honeycrisp::engine {

/// Everything that a sequence lacks, to be computed; no sequence twice in one list.
struct Work {
  Sequence* sequence = nullptr;
  uint32_t logits_from = 0;  // rows at this position and after it yield logits
  std::span<float> logits;   // [sequence->size() - logits_from][vocabulary], unless n_top
  uint32_t n_top = 0;        // of the last row alone, and no logits: so many of the largest
  TopLogits* top = nullptr;  // if n_top
  // If n_top, and one generated row is missing: so many positions after it are likely to be asked for next, each with
  // the token that has the largest logit. Where the executor has steps in flight it goes on with them meanwhile.
  uint32_t ahead = 0;

  uint32_t first_result() const { return n_top == 0 ? logits_from : sequence->size() - 1; }
};

class Stepper {
 public:
  struct Shape {
    uint32_t chunk = 1;       // most rows of a batch
    uint32_t table_rows = 0;  // logits that the executor yields for a row
    uint32_t vocabulary = 0;  // the first of them, which are handed on; ≤ table_rows
  };
  Stepper(backend::Executor& executor, KvCache& cache, const Shape& shape);

  /// Reserves the memory that all of the work takes at least, so that a lack of it shows before anything is computed.
  Result<void> reserve(std::span<const Work> works);
  /// Computes one batch of at most `most_rows`, in the order of the list. False once nothing is missing. On an error
  /// nothing counts as computed that did not before; batches that ran earlier stay.
  Result<bool> step(std::span<const Work> works, uint32_t most_rows = UINT32_MAX);
  /// Takes back what is computed ahead for the sequence: before it is forked, goes back or ends.
  void land(const Sequence& sequence) {
    if (flight_.sequence == &sequence) land();
  }
  uint32_t chunk() const { return shape_.chunk; }
  uint32_t last_rows() const { return uint32_t(rows_.size()); }  // of the last batch

 private:
  struct Part {
    const Work* work = nullptr;
    uint32_t end = 0;            // positions [computed(), end) of the sequence are in the batch
    uint32_t results_begin = 0;  // of them, those from here on yield logits, or the largest
    uint32_t n_logits() const { return work->n_top == 0 ? end - results_begin : 0; }
    uint32_t n_tops() const { return work->n_top == 0 ? 0 : end - results_begin; }
  };
  /// Gives everything back unless the batch is completed, also when memory for the batch itself runs out.
  struct Unfinished {
    std::span<const Part> parts;
    Sequence::Outcome outcome = Sequence::Outcome::kNotRun;
    ~Unfinished() {
      for (const Part& part : parts) part.work->sequence->abandon(outcome);
    }
  };
  /// Positions [computed(), end) of the sequence are in flight, the first of them with this token.
  struct Flight {
    Sequence* sequence = nullptr;
    uint32_t end = 0;
    int32_t token = 0;
    uint32_t n_top = 0;
  };
  bool flies(std::span<const Work> works) const;
  Result<void> fly(const Work& work);
  Result<void> issue_next(int32_t token);
  void land();

  Result<void> reserve_states(std::span<const Work> works);
  void plan(std::span<const Work> works, uint32_t most_rows);
  Result<void> compute(Unfinished& unfinished);
  std::span<float> logits_target(uint64_t n_rows);
  bool in_place() const;
  void deliver() const;

  backend::Executor* executor_;
  KvCache* cache_;
  Shape shape_;
  Flight flight_;
  const Sequence* last_ = nullptr;  // for which alone the last step was, if it was so
  std::vector<Part> parts_;
  std::vector<backend::Row> rows_;
  std::vector<backend::SequencePages> pages_;
  std::vector<float> scratch_;   // [rows that want logits][table_rows], where they cannot be written in place
  std::vector<TopLogits> tops_;  // [rows that want the largest]
};

}  // namespace honeycrisp::engine
