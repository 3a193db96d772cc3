#include "backend/metal/executor.h"

#include "backend/batch_check.h"
#include "backend/metal/op_compare.h"
#include "backend/metal/plan_device.h"
#include "backend/metal/step_inputs.h"
#include "backend/metal/step_memory.h"
#include "backend/metal/step_results.h"
#include "backend/reference/ops.h"
#include "base/log.h"
#include "base/stopwatch.h"

#include <algorithm>
#include <array>

namespace honeycrisp::backend::metal {
namespace {

/// Empty, or why the op has no kernel.
std::string obstacle_of(const program::Program& program, const program::Op& op, CacheType type) {
  return std::visit(
      [&](const auto& o) {
        if constexpr (std::is_same_v<std::decay_t<decltype(o)>, program::Attend>)
          return obstacle(program, o, type);
        else
          return obstacle(program, o);
      },
      op);
}

bool has_state(const program::Op& op) {
  return std::holds_alternative<program::Attend>(op) || std::holds_alternative<program::DeltaNet>(op);
}

/// Whether the op's encode function takes a pending residual with it.
bool takes_pending(const program::Op& op) {
  return std::holds_alternative<program::Project>(op) || std::holds_alternative<program::Logits>(op);
}

/// Of the op's matrices and of attention, roughly.
uint64_t multiply_adds(const program::Program& program, const program::Op& op, const PartRows& rows) {
  const auto elements = [&](const program::Matrix& m) { return uint64_t{m.rows} * program.weight(m).cols; };
  uint64_t of_a_row = 0;
  if (const auto* project = std::get_if<program::Project>(&op)) {
    for (const program::Matrix& m : project->matrices) of_a_row += elements(m);
  } else if (const auto* mix = std::get_if<program::MixExperts>(&op)) {
    of_a_row = mix->router.top_k * (elements(mix->gate) + elements(mix->up) + elements(mix->down));
  } else if (const auto* attend = std::get_if<program::Attend>(&op)) {
    const program::CacheLayer& layer = program.cache(*attend);
    const uint32_t seen = attend->window == 0 ? rows.n_positions : std::min(rows.n_positions, attend->window);
    of_a_row = uint64_t{attend->n_heads} * (uint64_t{layer.key_dim} + layer.value_dim) * seen;
  }
  return of_a_row * rows.n;
}

/// The command buffer that a step is being encoded into; a new one after each submission.
class Submission {
 public:
  explicit Submission(Device& device) : device_(device) {}

  Result<StepEncoder*> encoder() {
    if (!commands_) {
      HC_ASSIGN(commands_, device_.command_buffer("a step"));
      encoder_.emplace(commands_->encoder());
    }
    return &*encoder_;
  }
  /// Runs what was encoded, if anything was; the host may touch shared memory afterwards. Seconds on the device.
  Result<double> run() {
    if (!commands_) return 0.0;
    const auto commands = std::exchange(commands_, nullptr);
    encoder_.reset();
    commands->commit();
    HC_TRY(commands->wait());
    return commands->gpu_seconds();
  }

 private:
  Device& device_;
  std::unique_ptr<CommandBuffer> commands_;
  std::optional<StepEncoder> encoder_;
};

/// Of a prompt in a dry run: the fewest that are computed as prompts are.
constexpr uint32_t kDryRows = 2;

class MetalExecutor final : public Executor {
 public:
  MetalExecutor(std::shared_ptr<Device> device, const program::Program& program, const CompileOptions& options,
                DebugSwitches debug = {})
      : device_(std::move(device)),
        program_(program),
        options_(options),
        pipelines_(*device_),
        inputs_(*device_, options.max_rows, uint32_t(program.pools.size())),
        results_(*device_, program.vocabulary, n_choosable(program, options)),
        reference_kv_(program, options.cache_type),
        reference_states_(program) {
    for (const program::Step& s : program.steps) obstacles_.push_back(obstacle_of(program, s.op, options.cache_type));
    if (debug.times) times_.resize(program.steps.size());
    if (debug.compare) compare_.emplace(program, options.cache_type);
  }
  ~MetalExecutor() override {
    if (n_timed_steps_ == 0) return;
    for (const std::string& line : times_table(program_, plan_, times_, n_timed_steps_)) log_warning("{}", line);
  }

  Result<void> set_up(Plan plan) {
    plan_ = std::move(plan);
    HC_ASSIGN(memory_, StepMemory::make(*device_, program_, options_));
    return {};
  }

  Result<void> reserve_pages(uint32_t pool, uint32_t n_pages) override {
    if (compare_) HC_TRY(compare_->kv().reserve(pool, n_pages));
    return memory_->cache().reserve(pool, n_pages);
  }
  uint64_t page_bytes(uint32_t pool) const override { return memory_->cache().page_bytes(pool); }
  void copy_page(uint32_t pool, PageId from, PageId to) override {
    if (compare_) compare_->kv().copy_page(pool, from, to);
    memory_->cache().copy_page(pool, from, to);
  }
  Result<void> reserve_states(uint32_t n_states) override {
    if (compare_) HC_TRY(compare_->states().reserve(n_states));
    return memory_->cache().reserve_states(n_states);
  }
  uint64_t state_bytes() const override { return memory_->cache().state_bytes(); }
  void copy_state(StateId from, StateId to) override {
    if (compare_) compare_->states().copy(from, to);
    memory_->cache().copy_state(from, to);
  }

  Result<void> step(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) override;

  void ask_to_stop(std::function<bool()> should_stop) override { should_stop_ = std::move(should_stop); }
  Result<void> profile(double* seconds) override {
    seconds_ = seconds;
    return {};
  }
  const Plan& plan() const override { return plan_; }
  uint64_t memory_bytes() const override {
    return memory_->memory_bytes() + inputs_.memory_bytes() + results_.memory_bytes();
  }

  /// Encodes one generated row, or two of a prompt, and says for each op what it was.
  Result<std::vector<StepPlan>> dry_run(Role role);

 private:
  Result<void> run_op(size_t index, const Batch& part, const PartRows& rows, Submission& submission);
  Result<void> encode_op(size_t index, const PartRows& rows, StepEncoder& encoder);
  void run_reference(size_t index, const Batch& part, const PartRows& rows);
  void add_seconds(size_t index, double seconds) {
    if (seconds_ != nullptr) seconds_[index] += seconds;
    if (!times_.empty()) times_[index] += seconds;
  }
  std::vector<std::span<float>> host_buffers(const PartRows& rows);
  std::span<float> host_logits(const PartRows& rows);
  Result<void> flush(const PartRows& rows, Submission& submission);
  OpContext context(const PartRows& rows, StepEncoder& encoder) {
    return {program_, pipelines_, encoder, *memory_, rows, std::move(pending_)};
  }

  std::shared_ptr<Device> device_;
  const program::Program& program_;
  const CompileOptions options_;
  Pipelines pipelines_;
  StepInputs inputs_;
  StepResults results_;
  std::unique_ptr<StepMemory> memory_;
  std::optional<PendingResidual> pending_;
  std::vector<std::string> obstacles_;  // [steps]
  // Of the ops that go to `reference`, which have no state: empty.
  reference::KvStore reference_kv_;
  reference::StateStore reference_states_;
  double* seconds_ = nullptr;  // [steps], while profiling
  std::function<bool()> should_stop_;
  // For people who debug, as DebugSwitches say.
  std::vector<double> times_;  // [steps], or empty
  uint64_t n_timed_steps_ = 0;
  std::optional<OpCompare> compare_;
  Plan plan_;
};

Result<void> MetalExecutor::encode_op(size_t index, const PartRows& rows, StepEncoder& encoder) {
  const program::Op& op = program_.steps[index].op;
  OpContext c = context(rows, encoder);
  if (c.pending && !takes_pending(op) && !has_state(op)) HC_TRY(flush_residual(c));
  HC_TRY(std::visit([&](const auto& o) { return encode(c, o); }, op));
  pending_ = std::move(c.pending);
  return {};
}

Result<void> MetalExecutor::flush(const PartRows& rows, Submission& submission) {
  if (!pending_) return {};
  HC_ASSIGN(StepEncoder * encoder, submission.encoder());
  OpContext c = context(rows, *encoder);
  HC_TRY(flush_residual(c));
  pending_.reset();
  return {};
}

std::vector<std::span<float>> MetalExecutor::host_buffers(const PartRows& rows) {
  std::vector<std::span<float>> buffers;
  for (program::BufferId b = 0; b < program_.buffers.size(); ++b) buffers.push_back(memory_->host_buffer(b, rows.n));
  return buffers;
}

std::span<float> MetalExecutor::host_logits(const PartRows& rows) {
  if (rows.n_logits == 0) return {};
  return {reinterpret_cast<float*>(rows.logits.buffer->contents() + rows.logits.offset),
          size_t{rows.n_logits} * program_.vocabulary};
}

void MetalExecutor::run_reference(size_t index, const Batch& part, const PartRows& rows) {
  reference::StepState state{program_, part, host_buffers(rows), reference_kv_, reference_states_, host_logits(rows)};
  std::visit([&](const auto& o) { reference::run(state, o); }, program_.steps[index].op);
}

Result<void> MetalExecutor::run_op(size_t index, const Batch& part, const PartRows& rows, Submission& submission) {
  const program::Step& step = program_.steps[index];
  if (!obstacles_[index].empty()) {
    if (std::holds_alternative<program::Logits>(step.op) && rows.n_logits == 0) return {};
    HC_TRY(flush(rows, submission));
    HC_TRY(submission.run());
    const Stopwatch stopwatch;
    run_reference(index, part, rows);
    add_seconds(index, stopwatch.seconds());
    return {};
  }
  if (compare_) compare_->before(host_buffers(rows));
  HC_ASSIGN(StepEncoder * encoder, submission.encoder());
  const auto failed = [&](const Error& error) {
    return fail(error.code, "{} ({}): {}", step.label, program::op_name(step.op), error.message);
  };
  if (auto encoded = encode_op(index, rows, *encoder); !encoded) return failed(encoded.error());
  if (seconds_ == nullptr && times_.empty() && !compare_) return {};
  if (compare_) HC_TRY(flush(rows, submission));  // `reference` leaves nothing pending
  HC_ASSIGN(const double seconds, submission.run());
  add_seconds(index, seconds);
  if (compare_)
    if (auto same = compare_->after(index, part, host_buffers(rows), host_logits(rows)); !same)
      return failed(same.error());
  return {};
}

Result<void> MetalExecutor::step(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) {
  const BatchLimits limits{options_.max_rows, options_.max_positions};
  KvCache& cache = memory_->cache();
  HC_TRY(check_batch(program_, batch, limits, [&](uint32_t pool) { return cache.n_pages(pool); }, cache.n_states()));
  HC_ASSIGN(const Wanted wanted, check_wanted(batch, program_.vocabulary, logits.size(), top.size()));
  // What a step that failed left.
  pending_.reset();
  memory_->pool().take_all_back();
  HC_TRY(results_.reserve(wanted));
  HC_ASSIGN(const auto parts, inputs_.take_in(batch, program_.vocabulary, results_.logits()));
  for (const StepInputs::Part& part : parts) HC_TRY(memory_->reserve_positions(part.rows.n_positions));
  Submission submission(*device_);
  const uint64_t most_work = device_->most_work();
  for (const StepInputs::Part& part : parts) {
    uint64_t work = 0;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      HC_TRY(run_op(i, part.batch, part.rows, submission));
      work += multiply_adds(program_, program_.steps[i].op, part.rows);
      if (work < most_work) continue;
      HC_TRY(submission.run());
      if (should_stop_ && should_stop_()) return fail(ErrorCode::kCancelled, "stopped inside a step");
      work = 0;
    }
    HC_TRY(flush(part.rows, submission));
  }
  if (wanted.n_top != 0) {
    HC_ASSIGN(StepEncoder * encoder, submission.encoder());
    HC_TRY(results_.encode_top(wanted, pipelines_, *encoder, *memory_));
  }
  HC_TRY(submission.run());
  if (!times_.empty()) ++n_timed_steps_;
  memory_->pool().take_all_back();
  device_->store_pipelines();
  results_.hand_out(batch, logits, top);
  return {};
}

Result<std::vector<StepPlan>> MetalExecutor::dry_run(Role role) {
  memory_->pool().take_all_back();
  for (uint32_t pool = 0; pool < program_.pools.size(); ++pool) HC_TRY(reserve_pages(pool, 1));
  HC_TRY(reserve_states(1));
  constexpr PageId kPage = 0;
  SequencePages pages;
  pages.tables.assign(program_.pools.size(), std::span(&kPage, 1));
  pages.state = 0;
  std::array<Row, kDryRows> rows;
  for (uint32_t i = 0; i < kDryRows; ++i)
    rows[i] = {.token = 0, .position = i, .sequence = 0, .wants_logits = i == 0, .role = role};
  const Batch batch{std::span(rows).first(role == Role::kPrompt ? kDryRows : 1), std::span(&pages, 1)};
  HC_TRY(results_.reserve({.n_all = 1}));
  HC_ASSIGN(const auto parts, inputs_.take_in(batch, program_.vocabulary, results_.logits()));
  HC_ASSIGN(auto commands, device_->command_buffer("plan"));
  auto& recorder = static_cast<RecordingEncoder&>(commands->encoder());
  StepEncoder encoder(recorder);
  std::vector<StepPlan> plans;
  for (size_t i = 0; i < program_.steps.size(); ++i) {
    StepPlan plan;
    const uint32_t launches = encoder.launches(), barriers = encoder.barriers();
    if (const std::string& why = obstacles_[i]; !why.empty()) {
      plan = {std::string(program::op_name(program_.steps[i].op)) + ".reference", "on the host: " + why, 0, 0};
      if (pending_) {  // ended before the host takes over
        OpContext c = context(parts[0].rows, encoder);
        HC_TRY(flush_residual(c));
        pending_.reset();
        plan.launches = encoder.launches() - launches;
        plan.barriers = encoder.barriers() - barriers;
      }
    } else {
      recorder.kernels.clear();
      HC_TRY(encode_op(i, parts[0].rows, encoder));
      for (const std::string& kernel : recorder.kernels)
        if (plan.kernel.find(kernel) == std::string::npos) plan.kernel += (plan.kernel.empty() ? "" : "+") + kernel;
      plan.launches = encoder.launches() - launches;
      plan.barriers = encoder.barriers() - barriers;
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace

Result<void> check_program(const program::Program& program, const CompileOptions& options) {
  HC_TRY(check_cache_type(program, options.cache_type));
  HC_TRY(check_exact_activations(options.activations, "Metal"));
  if (options.max_rows == 0) return invalid("an executor for batches of no rows");
  for (const program::Step& s : program.steps)
    if (has_state(s.op))
      if (const std::string why = obstacle_of(program, s.op, options.cache_type); !why.empty())
        return unsupported("{}: {}", s.label, why);
  return {};
}

Result<Plan> make_plan(const program::Program& program, const CompileOptions& options, std::string backend,
                       uint64_t device_bytes) {
  HC_TRY(check_program(program, options));
  CompileOptions few = options;
  few.max_rows = kDryRows;
  few.progress = nullptr;
  MetalExecutor executor(std::make_shared<PlanDevice>(), program, few);
  HC_TRY(executor.set_up({}));
  Plan plan{.backend = std::move(backend), .device_bytes = device_bytes};
  HC_ASSIGN(plan.steps, executor.dry_run(Role::kGenerated));
  HC_ASSIGN(const std::vector<StepPlan> prompts, executor.dry_run(Role::kPrompt));
  for (size_t i = 0; i < prompts.size(); ++i)
    if (prompts[i].kernel != plan.steps[i].kernel) plan.steps[i].prompt_kernel = prompts[i].kernel;
  for (const program::Buffer& b : program.buffers)
    plan.buffer_bytes += uint64_t{options.max_rows} * b.width * sizeof(float);
  return plan;
}

Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<Device> device, const program::Program& program,
                                                const CompileOptions& options, DebugSwitches debug) {
  HC_ASSIGN(Plan plan, make_plan(program, options, device->describe(), device->recommended_memory_bytes()));
  auto executor = std::make_unique<MetalExecutor>(std::move(device), program, options, debug);
  HC_TRY(executor->set_up(std::move(plan)));
  return executor;
}

}  // namespace honeycrisp::backend::metal
