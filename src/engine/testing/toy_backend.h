// A backend for tests whose logits depend on every token that a row may see, through the pages it is given: a wrong,
// stale or shared page, a wrong position or a lost token changes them. Not a model; exact integer arithmetic.
#pragma once

#include "backend/backend.h"

#include <memory>
#include <vector>

namespace honeycrisp::engine::toy {

inline constexpr uint64_t kPageBytes = 1024;

/// A program of one layer per window (0: none), one pool each, and the given rows of its tables.
program::Program make_program(std::vector<uint32_t> windows, uint32_t vocabulary);

/// logits [vocabulary] after `tokens`, computed without pages.
std::vector<float> expected_logits(const program::Program& program, std::span<const int32_t> tokens);

/// What a test may look at and make fail.
struct Control {
  uint64_t steps = 0, rows = 0, copies = 0;
  size_t largest_batch = 0;
  std::vector<backend::Role> roles;  // of all rows, in order
  std::vector<int32_t> script;       // if not empty: the best token after position p is script[p % size]
  uint64_t fail_after = UINT64_MAX;  // steps that still succeed
  uint32_t max_pages = UINT32_MAX;   // of each pool: beyond, reserve_pages() fails
};

class Executor final : public backend::Executor {
 public:
  Executor(const program::Program& program, std::shared_ptr<Control> control);
  Result<void> reserve_pages(uint32_t pool, uint32_t n_pages) override;
  uint64_t page_bytes(uint32_t) const override { return kPageBytes; }
  void copy_page(uint32_t pool, backend::PageId from, backend::PageId to) override;
  Result<void> reserve_states(uint32_t) override { return {}; }
  uint64_t state_bytes() const override { return 0; }
  void copy_state(backend::StateId, backend::StateId) override {}
  Result<void> step(const backend::Batch& batch, std::span<float> logits) override;
  const backend::Plan& plan() const override { return plan_; }
  uint64_t memory_bytes() const override { return 0; }

 private:
  using Page = std::vector<uint64_t>;  // [kPagePositions]
  uint64_t run_row(const backend::Row& row, const backend::SequencePages& pages);

  const program::Program* program_;
  std::shared_ptr<Control> control_;
  std::vector<std::vector<Page>> pools_;
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
                                                     const backend::CompileOptions&) const override {
    return std::make_unique<Executor>(program, control_);
  }

 private:
  std::shared_ptr<Control> control_;
};

}  // namespace honeycrisp::engine::toy
