// A backend for tests whose logits depend on every token that a row may see, through the pages and the recurrent state
// it is given: a wrong, stale or shared one, a wrong position or a lost token changes them. Not a model; exact integer
// arithmetic.
#pragma once

#include "backend/host_executor.h"

#include <deque>
#include <memory>
#include <vector>

namespace honeycrisp::engine::toy {

inline constexpr uint64_t kPageBytes = 1024;

inline constexpr uint64_t kStateBytes = 2048;

/// A program of one layer per window (0: none), one pool each, then the recurrent layers, and the given rows of its
/// tables.
program::Program make_program(std::vector<uint32_t> windows, uint32_t vocabulary, uint32_t recurrent = 0);

/// logits [vocabulary] after `tokens`, computed without pages and states.
std::vector<float> expected_logits(const program::Program& program, std::span<const int32_t> tokens);

/// What a test may look at and make fail.
struct Control {
  uint64_t steps = 0, rows = 0, copies = 0, state_copies = 0;
  size_t largest_batch = 0;
  std::vector<backend::Role> roles;  // of all rows, in order
  std::vector<uint32_t> tops;        // Row::n_top of all rows that wanted logits, in order
  std::vector<int32_t> script;       // if not empty: the best token after position p is script[p % size]
  uint64_t fail_after = UINT64_MAX;  // steps that still succeed
  uint32_t max_pages = UINT32_MAX;   // of each pool: beyond, reserve_pages() fails
  uint32_t max_states = UINT32_MAX;  // likewise
  bool throws = false;               // a step that fails does so by std::bad_alloc
  uint32_t most_in_flight = 0;
  uint64_t issued = 0, most_issued = 0;  // steps that were in flight: all, together
};

class Executor final : public backend::HostExecutor {
 public:
  Executor(const program::Program& program, std::shared_ptr<Control> control,
           const backend::CompileOptions& options = {});
  Result<void> reserve_pages(uint32_t pool, uint32_t n_pages) override;
  uint64_t page_bytes(uint32_t) const override { return kPageBytes; }
  void copy_page(uint32_t pool, backend::PageId from, backend::PageId to) override;
  Result<void> reserve_states(uint32_t n_states) override;
  uint64_t state_bytes() const override { return program_->states.empty() ? 0 : kStateBytes; }
  void copy_state(backend::StateId from, backend::StateId to) override;
  uint32_t most_in_flight() const override { return control_->most_in_flight; }
  Result<void> issue(const backend::Batch& batch, bool follows) override;
  Result<TopLogits> collect() override;
  const backend::Plan& plan() const override { return plan_; }
  uint64_t memory_bytes() const override { return 0; }

 private:
  Result<void> compute(const backend::Batch& batch, std::span<float> logits) override;
  using Page = std::vector<uint64_t>;   // [kPagePositions]
  using State = std::vector<uint64_t>;  // [recurrent layers]
  void check_exclusive(const backend::Batch& batch) const;
  uint64_t run_row(const backend::Row& row, const backend::SequencePages& pages);

  const program::Program* program_;
  std::shared_ptr<Control> control_;
  std::vector<std::vector<Page>> pools_;
  std::vector<State> states_;
  std::deque<Result<TopLogits>> in_flight_;
  bool issuing_ = false;
  backend::Plan plan_{.backend = "toy"};
};

class Backend final : public backend::Backend {
 public:
  explicit Backend(std::shared_ptr<Control> control) : control_(std::move(control)) {}
  std::string_view name() const override { return "toy"; }
  std::string describe() const override { return "toy"; }
  Result<void> available() const override { return {}; }
  Result<backend::Plan> plan(const program::Program&, const backend::CompileOptions&) const override {
    return backend::Plan{.backend = "toy"};
  }
  Result<std::unique_ptr<backend::Executor>> compile(const program::Program& program,
                                                     const backend::CompileOptions& options) const override {
    return std::make_unique<Executor>(program, control_, options);
  }

 private:
  std::shared_ptr<Control> control_;
};

}  // namespace honeycrisp::engine::toy
