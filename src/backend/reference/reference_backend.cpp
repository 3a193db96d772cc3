#include "backend/reference/reference_backend.h"

#include "backend/batch_check.h"
#include "backend/host_executor.h"
#include "backend/reference/kv_store.h"
#include "backend/reference/ops.h"

namespace honeycrisp::backend {
namespace reference {
namespace {

class ReferenceExecutor final : public HostExecutor {
 public:
  ReferenceExecutor(const program::Program& program, const CompileOptions& options, Plan plan)
      : HostExecutor(program, options),
        program_(program),
        limits_{options.max_rows, options.max_positions},
        kv_(program, options.cache_type),
        states_(program),
        plan_(std::move(plan)) {}

  Result<void> reserve_pages(uint32_t pool, uint32_t n_pages) override { return kv_.reserve(pool, n_pages); }
  uint64_t page_bytes(uint32_t pool) const override { return kv_.page_bytes(pool); }
  void copy_page(uint32_t pool, PageId from, PageId to) override { kv_.copy_page(pool, from, to); }
  Result<void> reserve_states(uint32_t n_states) override { return states_.reserve(n_states); }
  uint64_t state_bytes() const override { return states_.bytes(); }
  void copy_state(StateId from, StateId to) override { states_.copy(from, to); }

  const Plan& plan() const override { return plan_; }
  uint64_t memory_bytes() const override { return scratch_bytes(); }

 private:
  Result<void> compute(const Batch& batch, std::span<float> logits) override {
    HC_TRY(check_batch(program_, batch, limits_, [&](uint32_t pool) { return kv_.n_pages(pool); }, states_.n_states()));
    StepState state{program_, batch, {}, kv_, states_, logits};
    std::vector<std::vector<float>> memory;
    for (const program::Buffer& b : program_.buffers) memory.emplace_back(batch.rows.size() * b.width);
    state.buffers.assign(memory.begin(), memory.end());
    for (const program::Step& s : program_.steps) std::visit([&](const auto& op) { run(state, op); }, s.op);
    return {};
  }

  const program::Program& program_;
  BatchLimits limits_;
  KvStore kv_;
  StateStore states_;
  Plan plan_;
};

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  std::string describe() const override { return "reference: plain f32 loops, 1 thread"; }
  Result<void> available() const override { return {}; }

  Result<Plan> plan(const program::Program& program, const CompileOptions& options) const override {
    HC_TRY(check_cache_type(program, options.cache_type));
    HC_TRY(check_exact_activations(options.activations, name()));
    Plan plan{.backend = describe()};
    for (const program::Step& s : program.steps)
      plan.steps.push_back(
          {std::string(program::op_name(s.op)) + ".reference", "the reference backend is plain by design", 1, 0});
    return plan;
  }

  Result<std::unique_ptr<Executor>> compile(const program::Program& program,
                                            const CompileOptions& options) const override {
    HC_ASSIGN(Plan made, plan(program, options));
    return std::make_unique<ReferenceExecutor>(program, options, std::move(made));
  }
};

}  // namespace
}  // namespace reference

const Backend& reference_backend() {
  static const reference::ReferenceBackend backend;
  return backend;
}

}  // namespace honeycrisp::backend
