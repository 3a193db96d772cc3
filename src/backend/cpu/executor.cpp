#include "backend/cpu/executor.h"

#include "backend/batch_check.h"
#include "backend/cpu/ceilings.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/packing.h"
#include "backend/cpu/pass_walk.h"
#include "backend/cpu/thread_pool.h"
#include "backend/host_executor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/checked.h"
#include "program/check.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>

namespace honeycrisp::backend::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostItems = size_t{1} << 31;  // of a pass: PassWalk counts them in 32 bits, and some beyond the last
constexpr size_t kRangesPerThread = 16;         // of a pass's items: small enough that no thread waits long for another

// Adds up aligned regions; remembers an overflow.
class Layout {
 public:
  /// Offset of `rows` times `per_row` values of `size` bytes.
  size_t add(uint64_t rows, uint64_t per_row, size_t size) {
    const auto count = checked_mul(rows, per_row);
    const auto bytes = count ? checked_mul<uint64_t>(*count, size) : std::nullopt;
    const auto padded = bytes ? checked_add<uint64_t>(*bytes, kAlignment - 1) : std::nullopt;
    const auto end = padded ? checked_add<uint64_t>(total_, *padded / kAlignment * kAlignment) : std::nullopt;
    const size_t offset = total_;
    if (end && *end < SIZE_MAX / 2)
      total_ = *end;
    else
      overflow_ = true;
    return offset;
  }
  bool overflow() const { return overflow_; }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
  bool overflow_ = false;
};

// Where activations and scratch of up to `rows` rows lie in one piece of memory: offsets.
struct BufferLayout {
  BufferLayout(const program::Program& program, const Needs& needs, size_t group_bytes, uint64_t rows,
               uint32_t threads) {
    for (const program::Buffer& b : program.buffers) buffers.push_back(all.add(rows, b.width, sizeof(float)));
    groups = all.add(round_up<uint64_t>(rows, kTileRows), needs.groups_per_row, group_bytes);
    plain = all.add(rows, needs.plain_per_row, sizeof(float));
    outputs = all.add(rows, needs.outputs_per_row, sizeof(float));
    queries = all.add(rows, needs.queries_per_row, sizeof(float));
    indices = all.add(1, needs.indices, sizeof(uint32_t));
    all.add(rows, needs.indices_per_row, sizeof(uint32_t));  // right behind them: both are of whole cache lines
    for (uint32_t i = 0; i < threads; ++i) {
      own_groups.push_back(all.add(1, needs.groups_per_row, group_bytes));
      own_plain.push_back(all.add(1, needs.plain_per_row, sizeof(float)));
      for (auto& offsets : panels) offsets.push_back(all.add(rows, needs.panels_per_row * kLanes, sizeof(float)));
      floats.push_back(all.add(1, needs.thread_floats, sizeof(float)));
    }
  }

  Layout all;
  std::vector<size_t> buffers;                                   // [Program::buffers]
  size_t groups, plain, outputs, queries, indices;               // of all threads
  std::vector<size_t> own_groups, own_plain, panels[2], floats;  // [threads]
};

Needs needs_of(const Kernels& kernels) {
  Needs needs;
  for (const auto& kernel : kernels) needs.add(kernel->needs());
  return needs;
}

class CpuExecutor final : public HostExecutor {
 public:
  CpuExecutor(const program::Program& program, const CompileOptions& options, const Isa& isa, uint32_t threads)
      : HostExecutor(program, options),
        program_(program),
        options_(options),
        pool_(threads),
        walk_(pool_.spins()),
        cache_(program, options.cache_type),
        states_(program),
        ropes_(program) {
    state_.isa = &isa;
    state_.integers = &integers_of(isa, options.activations);
    state_.group_bytes = group_bytes(options.activations);
    state_.n_threads = pool_.size();
    state_.cache = &cache_;
    state_.states = &states_;
    state_.ropes = &ropes_;
  }

  /// Takes the weights in and makes the kernels and their memory.
  Result<void> set_up();
  void set_plan(Plan plan) { plan_ = std::move(plan); }
  uint32_t n_threads() const { return pool_.size(); }
  const Kernels& kernels() const { return kernels_; }

  Result<void> reserve_pages(uint32_t pool, uint32_t n_pages) override { return cache_.reserve(pool, n_pages); }
  uint64_t page_bytes(uint32_t pool) const override { return cache_.page_bytes(pool); }
  void copy_page(uint32_t pool, PageId from, PageId to) override { cache_.copy_page(pool, from, to); }

  Result<void> reserve_states(uint32_t n_states) override { return states_.reserve(n_states); }
  uint64_t state_bytes() const override { return states_.bytes(); }
  void copy_state(StateId from, StateId to) override { states_.copy(from, to); }

  Result<Ceilings> measure_ceilings(uint64_t bytes) override {
    return cpu::measure_ceilings(pool_, *state_.isa, packed_.memory(program_), bytes);
  }
  Result<void> profile(double* seconds) override {
    profile_ = seconds;
    return {};
  }

  const Plan& plan() const override { return plan_; }
  uint64_t memory_bytes() const override {
    return packed_.memory_bytes() + memory_bytes_ + softmax_bytes_ + kernel_bytes_ + ropes_.memory_bytes() +
           scratch_bytes();
  }

 private:
  Result<void> compute(const Batch& batch, std::span<float> logits) override;
  Result<void> allocate_memory();
  Result<void> validate(const Batch& batch) const;
  Result<void> reserve_chunks(uint32_t n_chunks);
  void group_by_sequence(const Batch& batch);
  void list_passes();
  void work(uint32_t thread);
  void take_time(size_t step);

  const program::Program& program_;
  const CompileOptions options_;
  PackedWeights packed_;
  Kernels kernels_;  // point into packed_
  Needs needs_;
  Plan plan_;

  ThreadPool pool_;
  PassWalk walk_;

  KvCache cache_;
  StateStore states_;
  RopeTables ropes_;
  Memory<std::byte> memory_, softmax_;
  uint64_t memory_bytes_ = 0, softmax_bytes_ = 0, kernel_bytes_ = 0;
  uint32_t chunk_capacity_ = 0;
  std::vector<float*> buffers_;
  std::vector<uint32_t> widths_, logit_rows_;
  std::vector<SequenceRow> rows_by_sequence_;
  std::vector<SequenceRun> runs_;
  std::vector<uint32_t> run_of_sequence_;  // [Batch::sequences]
  std::vector<ThreadScratch> scratch_;
  StepState state_{};
  double* profile_ = nullptr;  // [Program::steps]
  Clock::time_point pass_ended_;
};

Result<void> CpuExecutor::set_up() {
  HC_ASSIGN(packed_, PackedWeights::make(program_, options_, pool_));
  HC_ASSIGN(kernels_, make_kernels(program_, {*state_.isa, &packed_, options_.activations}));
  needs_ = needs_of(kernels_);
  for (const auto& kernel : kernels_) kernel_bytes_ += kernel->memory_bytes();
  return allocate_memory();
}

Result<void> CpuExecutor::allocate_memory() {
  const uint64_t rows = options_.max_rows;
  const BufferLayout at(program_, needs_, state_.group_bytes, rows, pool_.size());
  if (at.all.overflow()) return invalid("buffers for {} rows would not fit the address space", rows);
  memory_bytes_ = at.all.total();
  memory_ = allocate<std::byte>(memory_bytes_);
  if (!memory_)
    return fail(ErrorCode::kOutOfMemory,
                "{} of buffers for {} positions at once cannot be allocated (a smaller chunk takes less)",
                format_bytes(memory_bytes_), rows);

  const auto floats_at = [&](size_t offset) { return reinterpret_cast<float*>(memory_.get() + offset); };
  for (size_t offset : at.buffers) buffers_.push_back(floats_at(offset));
  for (const program::Buffer& b : program_.buffers) widths_.push_back(b.width);
  for (uint32_t i = 0; i < pool_.size(); ++i)
    scratch_.push_back({.groups = memory_.get() + at.own_groups[i],
                        .plain = floats_at(at.own_plain[i]),
                        .panels = {floats_at(at.panels[0][i]), floats_at(at.panels[1][i])},
                        .floats = floats_at(at.floats[i])});
  state_.buffers = buffers_.data();
  state_.widths = widths_.data();
  state_.groups = memory_.get() + at.groups;
  state_.plain = floats_at(at.plain);
  state_.outputs = floats_at(at.outputs);
  state_.queries = floats_at(at.queries);
  state_.indices = reinterpret_cast<uint32_t*>(memory_.get() + at.indices);
  size_t n_passes = 0;
  for (const auto& kernel : kernels_) n_passes += kernel->n_passes();
  walk_.reserve(n_passes);
  logit_rows_.reserve(options_.max_rows);
  if (program_.states.empty()) return {};
  rows_by_sequence_.resize(options_.max_rows);
  runs_.reserve(options_.max_rows);
  run_of_sequence_.reserve(options_.max_rows);
  return {};
}

// Partial softmaxes of the few rows whose chunks are computed apart; grows with the context, by doubling.
Result<void> CpuExecutor::reserve_chunks(uint32_t n_chunks) {
  state_.n_chunks = n_chunks;
  if (n_chunks <= chunk_capacity_) return {};
  const uint64_t doubled = std::bit_ceil(n_chunks);
  const size_t bytes = 2 * size_t{state_.n_threads} * doubled * needs_.softmax_floats * sizeof(float);
  Memory<std::byte> grown = allocate<std::byte>(bytes);
  if (!grown)
    return fail(ErrorCode::kOutOfMemory,
                "{} for attention at {} positions cannot be allocated (a shorter context takes less)",
                format_bytes(bytes), n_chunks * kChunkPositions);
  softmax_ = std::move(grown);
  softmax_bytes_ = bytes;
  state_.softmax = reinterpret_cast<float*>(softmax_.get());
  chunk_capacity_ = uint32_t(doubled);
  return {};
}

void CpuExecutor::group_by_sequence(const Batch& batch) {
  constexpr uint32_t kNone = UINT32_MAX;
  runs_.clear();
  run_of_sequence_.assign(batch.sequences.size(), kNone);
  for (const Row& row : batch.rows) {
    uint32_t& run = run_of_sequence_[row.sequence];
    if (run == kNone) {
      run = uint32_t(runs_.size());
      runs_.push_back({.first = 0, .count = 0, .sequence = row.sequence});
    }
    ++runs_[run].count;
  }
  for (uint32_t i = 0, first = 0; i < runs_.size(); first += runs_[i++].count) runs_[i].first = first;
  for (SequenceRun& run : runs_) run.count = 0;  // and counted again while they are filled
  for (uint32_t row = 0; row < batch.rows.size(); ++row) {
    const uint32_t index = run_of_sequence_[batch.rows[row].sequence];
    rows_by_sequence_[runs_[index].first + runs_[index].count++] = {row, index};
  }
  state_.rows_by_sequence = rows_by_sequence_.data();
  state_.runs = runs_.data();
  state_.n_runs = uint32_t(runs_.size());
}

Result<void> CpuExecutor::validate(const Batch& batch) const {
  const BatchLimits limits{options_.max_rows, options_.max_positions};
  return check_batch(program_, batch, limits, [&](uint32_t pool) { return cache_.n_pages(pool); }, states_.n_states());
}

Result<void> CpuExecutor::compute(const Batch& batch, std::span<float> logits) {
  HC_TRY(validate(batch));
  uint32_t n_positions = 0;
  logit_rows_.clear();
  for (uint32_t i = 0; i < batch.rows.size(); ++i) {
    n_positions = std::max(n_positions, batch.rows[i].position + 1);
    if (batch.rows[i].wants_logits) logit_rows_.push_back(i);
  }
  ropes_.reserve(n_positions);
  HC_TRY(reserve_chunks(ceil_div(n_positions, kChunkPositions)));
  if (!program_.states.empty()) group_by_sequence(batch);
  state_.batch = &batch;
  state_.n_rows = uint32_t(batch.rows.size());
  state_.logit_rows = logit_rows_.data();
  state_.n_logit_rows = uint32_t(logit_rows_.size());
  state_.logits = logits.data();
  if (profile_ != nullptr) pass_ended_ = Clock::now();
  list_passes();
  pool_.share([](void* self, uint32_t thread) { static_cast<CpuExecutor*>(self)->work(thread); }, this);
  return {};
}

void CpuExecutor::list_passes() {
  walk_.clear();
  for (uint32_t step = 0; step < kernels_.size(); ++step)
    for (uint32_t pass = 0; pass < kernels_[step]->n_passes(); ++pass) {
      const size_t n = kernels_[step]->n_items(pass, state_);
      if (n == 0) continue;
      HC_CHECK(n < kMostItems, "{} items in pass {} of step {}", n, pass, step);
      const size_t range = std::max<size_t>(1, n / (kRangesPerThread * state_.n_threads));
      walk_.add({.step = step, .pass = pass, .n_items = uint32_t(n), .range = uint32_t(range)});
    }
  walk_.begin();
}

void CpuExecutor::work(uint32_t thread) {
  ThreadScratch& scratch = scratch_[thread];
  using Pass = PassWalk::Pass;
  walk_.walk(
      [&](const Pass& p) { kernels_[p.step]->enter(p.pass, state_, scratch); },
      [&](const Pass& p, uint32_t first, uint32_t end) { kernels_[p.step]->run(p.pass, first, end, state_, scratch); },
      [&](const Pass& p) {
        if (profile_ != nullptr) take_time(p.step);
      });
}

// By the last thread of a pass: one that was preempted while it waited would give its time to a later step.
void CpuExecutor::take_time(size_t step) {
  const auto now = Clock::now();
  profile_[step] += std::chrono::duration<double>(now - pass_ended_).count();
  pass_ended_ = now;
}

}  // namespace

void Needs::add(const Needs& other) {
  for (size_t Needs::* field : {&Needs::groups_per_row, &Needs::plain_per_row, &Needs::outputs_per_row,
                                &Needs::queries_per_row, &Needs::indices_per_row, &Needs::indices,
                                &Needs::panels_per_row, &Needs::thread_floats, &Needs::softmax_floats})
    this->*field = std::max(this->*field, other.*field);
}

Result<Kernels> make_kernels(const program::Program& program, const Target& target) {
  Kernels kernels;
  for (const program::Step& step : program.steps) {
    auto kernel = std::visit([&](const auto& op) { return make_kernel(program, op, target); }, step.op);
    if (!kernel) return fail(kernel.error().code, "{}: {}", step.label, kernel.error().message);
    kernels.push_back(std::move(*kernel));
  }
  return kernels;
}

Plan make_plan(const program::Program& program, const Kernels& kernels, const CompileOptions& options, const Isa& isa,
               uint32_t threads, std::string backend) {
  Plan plan{.backend = std::move(backend), .steps = {}};
  const BufferLayout buffers(program, needs_of(kernels), group_bytes(options.activations), options.max_rows, threads);
  if (!buffers.all.overflow()) plan.buffer_bytes = buffers.all.total();
  const StepState one_row{.n_rows = 1, .n_logit_rows = 1, .n_threads = threads, .n_chunks = 1, .n_runs = 1};
  for (size_t i = 0; i < kernels.size(); ++i) {
    const OpKernel& kernel = *kernels[i];
    StepPlan step{.kernel = program::op_name(program.steps[i].op), .why_not_fast = kernel.why_not_fast()};
    if (const std::string variant = kernel.variant(); !variant.empty()) step.kernel += "." + variant;
    step.kernel += std::string(".") + isa.name;
    for (uint32_t pass = 0; pass < kernel.n_passes(); ++pass)
      if (kernel.n_items(pass, one_row) != 0) ++step.launches;
    step.barriers = threads > 1 ? step.launches : 0;
    plan.steps.push_back(std::move(step));
  }
  return plan;
}

Result<std::unique_ptr<Executor>> make_executor(const program::Program& program, const CompileOptions& options,
                                                const Isa& isa, uint32_t threads, std::string backend) {
  if (options.max_rows == 0) return invalid("an executor for batches of no rows");
  auto executor = std::make_unique<CpuExecutor>(program, options, isa, threads);
  HC_TRY(executor->set_up());
  executor->set_plan(make_plan(program, executor->kernels(), options, isa, executor->n_threads(), std::move(backend)));
  return executor;
}

}  // namespace honeycrisp::backend::cpu
