// What executors that compute logits in main memory have in common: rows that want all their logits have them written
// where they go, of rows that want the largest those are found here. Owns the memory of logits that nobody else wants.
#pragma once

#include "backend/backend.h"

namespace honeycrisp::backend {

class HostExecutor : public Executor {
 public:
  Result<void> step(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) final;
  using Executor::step;

 protected:
  HostExecutor(const program::Program& program, const CompileOptions& options)
      : vocabulary_(program.vocabulary), n_choosable_(n_choosable(program, options)) {}
  uint64_t scratch_bytes() const { return scratch_.capacity() * sizeof(float); }

 private:
  /// Computes the rows and writes logits [rows that want any, in order][vocabulary].
  virtual Result<void> compute(const Batch& batch, std::span<float> logits) = 0;

  uint32_t vocabulary_, n_choosable_;
  std::vector<float> scratch_;  // [rows that want any][vocabulary], of batches with rows that want the largest
};

}  // namespace honeycrisp::backend
