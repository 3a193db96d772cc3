#include "backend/cuda/executor.h"

#include "backend/batch_check.h"
#include "backend/cuda/ceilings.h"
#include "backend/cuda/encoder.h"
#include "backend/cuda/persistent_step.h"
#include "backend/cuda/rope_tables.h"
#include "backend/cuda/top_results.h"
#include "base/check.h"
#include "base/checked.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <cuda_runtime_api.h>
#include <map>
#include <tuple>

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint32_t kMostGraphRows = 8;
constexpr size_t kMostGraphs = 64;
constexpr uint64_t kFirstTableWords = 1024;

// What a step sends to the device: arrays of max_rows each, then the page tables. In 32-bit words; a Run takes several.
// On the host one of several slots is filled in, as those of steps in flight may yet be read.
class StepInputs {
 public:
  enum Array : uint32_t {
    kTokens,
    kPositions,
    kPrompt,
    kGenerated,
    kPromptLogits,
    kPromptDest,
    kGeneratedLogits,
    kGeneratedDest,
    kRuns,  // of sequences with recurrent state: kRunWords each
    kRunRows = kRuns + sizeof(Run) / sizeof(uint32_t),
    kRunOf,
    kArrays
  };
  static_assert(kRuns % 2 == 0 && alignof(Run) == 8);
  static_assert(kTokens == 0 && kPositions == 1, "tokens that are on the device are left out");

  static Result<StepInputs> make(uint32_t max_rows, uint32_t n_pools, uint64_t table_words) {
    StepInputs inputs;
    inputs.max_rows_ = max_rows;
    inputs.n_pools_ = n_pools;
    inputs.words_ = inputs.tables_at() + table_words;
    const uint64_t bytes = inputs.words_ * sizeof(uint32_t);
    HC_ASSIGN(inputs.device_, Memory::allocate(bytes, "inputs of a step"));
    HC_ASSIGN(inputs.host_, Memory::allocate(kMostInFlight * bytes, "inputs of a step", Memory::Place::kHost));
    return inputs;
  }
  uint64_t table_words() const { return words_ - tables_at(); }

  void use(uint32_t slot) { slot_ = slot; }
  uint32_t* host(Array a) const { return host_slot(slot_) + uint64_t{a} * max_rows_; }
  const uint32_t* device(Array a) const { return device_.as<uint32_t>() + uint64_t{a} * max_rows_; }
  uint32_t* host_table_start() const { return host(kArrays); }
  const uint32_t* device_table_start() const { return device(kArrays); }
  uint32_t* host_tables() const { return host_slot(slot_) + tables_at(); }
  const uint32_t* device_tables() const { return device_.as<uint32_t>() + tables_at(); }

  /// The array `from` and what follows it.
  Result<void> send(Array from, uint64_t table_words, Stream stream) {
    sent_slot_ = slot_;
    sent_words_ = table_words;
    const uint64_t words = tables_at() + table_words - uint64_t{from} * max_rows_;
    return check_cuda(cudaMemcpyAsync(device_.as<uint32_t>() + uint64_t{from} * max_rows_, host(from),
                                      words * sizeof(uint32_t), cudaMemcpyHostToDevice, stream),
                      "sending a step's inputs");
  }
  /// Whether the page tables of one row are those of the slot before, which are on the device. After an issue that
  /// failed there is none before.
  bool repeats_tables(uint64_t table_words) {
    if (sent_slot_ == slot_) return false;
    const uint32_t* before = host_slot(std::exchange(sent_slot_, slot_));
    const auto same = [&](uint64_t at, uint64_t n) {
      return std::equal(host_slot(slot_) + at, host_slot(slot_) + at + n, before + at);
    };
    return table_words == sent_words_ && same(uint64_t{kArrays} * max_rows_, n_pools_) &&
           same(tables_at(), table_words);
  }
  int32_t* device_token() const { return device_.as<int32_t>(); }  // the first of kTokens
  uint64_t memory_bytes() const { return device_.bytes(); }

 private:
  uint32_t* host_slot(uint32_t slot) const { return host_.as<uint32_t>() + slot * words_; }
  uint64_t tables_at() const { return (uint64_t{kArrays} + n_pools_) * max_rows_; }
  uint32_t slot_ = 0, sent_slot_ = 0;
  uint64_t sent_words_ = 0;
  uint32_t max_rows_ = 0, n_pools_ = 0;
  uint64_t words_ = 0;
  Memory device_, host_;
};

bool runs_persistently(const program::Program& program, const CompileOptions& options, const DeviceInfo& device) {
  const std::vector<std::string> obstacles = persistent_obstacles(program, options.cache_type);
  return persistent_device_obstacle(device).empty() &&
         std::all_of(obstacles.begin(), obstacles.end(), [](const std::string& why) { return why.empty(); });
}

// A captured step.
class Graph {
 public:
  Graph() = default;
  explicit Graph(cudaGraphExec_t graph) : graph_(graph) {}
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~Graph() {
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(graph_);
  }
  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(const program::Program& program, const CompileOptions& options, const DeviceInfo& device)
      : program_(program),
        options_(options),
        device_(device),
        persists_(runs_persistently(program, options, device)),
        ropes_(program),
        top_(program.vocabulary, n_choosable(program, options)),
        plan_(make_plan(program, options, device)) {}
  ~CudaExecutor() override {
    graphs_.clear();
    for (const cudaEvent_t event : arrived_)
      if (event != nullptr) (void)cudaEventDestroy(event);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  Result<void> set_up();

  Result<void> reserve_pages(uint32_t pool, uint32_t n_pages) override;
  uint64_t page_bytes(uint32_t pool) const override { return cache_.page_bytes(pool); }
  void copy_page(uint32_t pool, PageId from, PageId to) override;
  Result<void> reserve_states(uint32_t n_states) override { return states_.reserve(n_states); }
  uint64_t state_bytes() const override { return states_.bytes(); }
  void copy_state(StateId from, StateId to) override;

  Result<void> step(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) override;
  uint32_t most_in_flight() const override { return program_.states.empty() ? kMostInFlight : 0; }
  Result<void> issue(const Batch& batch, bool follows) override;
  Result<TopLogits> collect() override;

  Result<Ceilings> measure_ceilings(uint64_t bytes) override {
    return cuda::measure_ceilings(weights_.memory(), bytes, device_, stream_);
  }
  Result<void> profile(double* seconds) override {
    times_.reset();
    if (seconds != nullptr) times_ = std::make_unique<StepTimes>(seconds, program_.steps.size());
    return {};
  }

  const Plan& plan() const override { return plan_; }
  uint64_t memory_bytes() const override {
    return weights_.memory().bytes() + memory_.bytes() + ropes_.memory_bytes() + inputs_.memory_bytes() +
           logits_.bytes() + top_.memory_bytes() + cache_.memory_bytes() +
           (persistent_ ? persistent_->memory_bytes() : 0);
  }

 private:
  using Shape = std::tuple<uint32_t, uint32_t, uint32_t>;  // rows, rows with logits, positions

  Result<void> run(const Batch& batch, std::span<float> logits, std::span<TopLogits> top);
  Result<void> run_part(const Batch& batch);
  Result<void> validate(const Batch& batch) const;
  Result<StepRows> take_in(const Batch& batch, bool follows);
  Result<void> make_room(uint32_t n_positions, uint64_t table_words);
  void idle();
  RunList take_in_runs(const Batch& batch);
  Result<void> reserve_logits(const Wanted& wanted);
  Result<void> fetch_logits(const Batch& batch, const Wanted& wanted);
  void hand_out(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) const;
  Result<void> launch(const Batch& batch, const StepRows& rows);
  Result<Graph> capture(const StepRows& rows);

  const program::Program& program_;
  const CompileOptions options_;
  const DeviceInfo& device_;
  const bool persists_;  // nothing known beforehand keeps generated rows from the persistent kernel
  cudaStream_t stream_ = nullptr;
  Weights weights_;
  KvCache cache_;
  StateStore states_;
  RopeTables ropes_;
  Memory memory_;
  Memory logits_;       // of all rows that want any, but for one row whose logits go to the host as they are made
  Memory logits_host_;  // of those that want all of them
  TopResults top_;
  StepInputs inputs_;
  std::unique_ptr<Encoder> encoder_;
  std::optional<PersistentStep> persistent_;
  std::map<Shape, Graph> graphs_;
  std::unique_ptr<StepTimes> times_;  // while profiled
  float* part_logits_ = nullptr;      // of the part of the step that is being issued
  Result<void> pending_;              // of a copy of a page or state: told by the next step
  // Steps in flight: slots [first_in_flight_, first_in_flight_ + n_in_flight_), round and round.
  uint32_t first_in_flight_ = 0, n_in_flight_ = 0;
  std::array<cudaEvent_t, kMostInFlight> arrived_ = {};  // of each slot: its results are on the host
  std::array<uint8_t, kMostInFlight> in_flight_top_ = {};
  // An error: a step that was not issued may have put its token in the place of the one that the next would follow, so
  // that none follows any more, until those in flight are collected.
  Result<void> token_;
  Plan plan_;
};

Result<void> CudaExecutor::set_up() {
  StepMemory places = place_step_memory(program_, options_, prompt_path(program_, device_), persists_);
  HC_ASSIGN(const uint64_t weights, Weights::needed_bytes(program_, persists_));
  const auto needed = checked_add(weights, places.layout.total());
  if (places.layout.overflow() || !needed)
    return invalid("buffers for {} rows would not fit the address space", options_.max_rows);
  HC_ASSIGN(const auto room, free_memory());
  if (*needed > room.first)
    return fail(ErrorCode::kOutOfMemory,
                "{} bytes of device memory are needed ({} of weights, {} of buffers for {} rows), {} of {} are free",
                *needed, weights, places.layout.total(), options_.max_rows, room.first, room.second);
  HC_TRY(check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"));
  for (cudaEvent_t& event : arrived_)
    HC_TRY(check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event"));
  HC_ASSIGN(memory_, Memory::allocate(std::max<uint64_t>(places.layout.total(), 1), "buffers"));
  HC_ASSIGN(inputs_, StepInputs::make(options_.max_rows, uint32_t(program_.pools.size()), kFirstTableWords));
  HC_ASSIGN(cache_, KvCache::make(program_, options_.cache_type, stream_));
  states_ = StateStore(program_, stream_);
  HC_ASSIGN(weights_, Weights::load(program_, options_, persists_, stream_));
  encoder_ = std::make_unique<Encoder>(program_, weights_, cache_, device_, std::move(places), memory_);
  if (persists_) {
    auto persistent = PersistentStep::make(program_, options_, weights_, cache_, device_, stream_);
    if (!persistent && persistent.error().code != ErrorCode::kUnsupported) return tl::unexpected(persistent.error());
    if (persistent) persistent_ = std::move(*persistent);
  }
  return {};
}

Result<void> CudaExecutor::reserve_pages(uint32_t pool, uint32_t n_pages) { return cache_.reserve(pool, n_pages); }

void CudaExecutor::copy_page(uint32_t pool, PageId from, PageId to) {
  if (auto copied = cache_.copy_page(pool, from, to); !copied) pending_ = copied;
}

void CudaExecutor::copy_state(StateId from, StateId to) {
  if (auto copied = states_.copy(from, to); !copied) pending_ = copied;
}

Result<void> CudaExecutor::validate(const Batch& batch) const {
  const BatchLimits limits{options_.max_rows, context_length(options_)};
  return check_batch(program_, batch, limits, [&](uint32_t pool) { return cache_.n_pages(pool); }, states_.n_states());
}

// The rows by sequence, for layers whose rows depend on those before.
RunList CudaExecutor::take_in_runs(const Batch& batch) {
  using I = StepInputs;
  RunList list;
  if (program_.states.empty()) return list;
  list.n_rows = uint32_t(batch.rows.size());
  auto* runs = reinterpret_cast<Run*>(inputs_.host(I::kRuns));
  std::vector<uint32_t> run_of(batch.sequences.size(), UINT32_MAX), sequences;
  for (const Row& r : batch.rows) {
    if (run_of[r.sequence] == UINT32_MAX) {
      run_of[r.sequence] = uint32_t(sequences.size());
      sequences.push_back(r.sequence);
      runs[run_of[r.sequence]] = {states_.at(batch.sequences[r.sequence].state), 0, 0};
    }
    ++runs[run_of[r.sequence]].n;
  }
  for (size_t i = 1; i < sequences.size(); ++i) runs[i].first = runs[i - 1].first + runs[i - 1].n;
  std::vector<uint32_t> next;
  next.reserve(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) next.push_back(runs[i].first);
  for (uint32_t i = 0; i < list.n_rows; ++i) {
    const uint32_t run = run_of[batch.rows[i].sequence], at = next[run]++;
    inputs_.host(I::kRunRows)[at] = i;
    inputs_.host(I::kRunOf)[at] = run;
  }
  // Graphs serve any number of sequences.
  list.n_runs = list.n_rows <= kMostGraphRows ? list.n_rows : uint32_t(sequences.size());
  for (size_t i = sequences.size(); i < list.n_runs; ++i) runs[i] = {};
  list.rows = inputs_.device(I::kRunRows);
  list.run_of = inputs_.device(I::kRunOf);
  list.runs = reinterpret_cast<const Run*>(inputs_.device(I::kRuns));
  return list;
}

// Grows what depends on the context. Steps in flight use what is replaced, so they come first; the token that the last
// of them chose moves along.
Result<void> CudaExecutor::make_room(uint32_t n_positions, uint64_t table_words) {
  const bool tables_fit = table_words <= inputs_.table_words();
  if (n_positions <= ropes_.n_positions() && tables_fit) return {};
  HC_TRY(check_cuda(cudaStreamSynchronize(stream_), "steps before memory grows"));
  HC_ASSIGN(const bool moved, ropes_.reserve(n_positions));
  if (moved || !tables_fit) graphs_.clear();
  if (tables_fit) return {};
  HC_ASSIGN(StepInputs roomier,
            StepInputs::make(options_.max_rows, uint32_t(program_.pools.size()), std::bit_ceil(table_words)));
  HC_TRY(check_cuda(cudaMemcpyAsync(roomier.device_token(), inputs_.device_token(), sizeof(int32_t),
                                    cudaMemcpyDeviceToDevice, stream_),
                    "moving a token"));
  HC_TRY(check_cuda(cudaStreamSynchronize(stream_), "moving a token"));
  inputs_ = std::move(roomier);
  return {};
}

// Fills and sends the inputs.
Result<StepRows> CudaExecutor::take_in(const Batch& batch, bool follows) {
  const auto n_pools = uint32_t(program_.pools.size());
  StepRows rows;
  rows.n_rows = uint32_t(batch.rows.size());
  for (const Row& r : batch.rows) rows.n_positions = std::max(rows.n_positions, r.position + 1);
  // Launches are sized for a power of two of chunks, so that a graph serves many positions.
  const uint32_t most = ceil_div(context_length(options_), program::kAttentionChunk);
  rows.n_positions =
      std::min(std::bit_ceil(ceil_div(rows.n_positions, program::kAttentionChunk)), most) * program::kAttentionChunk;
  uint64_t table_words = 0;
  std::vector<std::vector<uint32_t>> starts(batch.sequences.size());  // [sequences][pools]
  for (size_t s = 0; s < batch.sequences.size(); ++s)
    for (const auto& table : batch.sequences[s].tables) {
      starts[s].push_back(uint32_t(table_words));
      table_words += table.size();
    }
  if (table_words > UINT32_MAX) return invalid("page tables of {} entries", table_words);
  HC_TRY(make_room(rows.n_positions, table_words));
  inputs_.use((first_in_flight_ + n_in_flight_) % kMostInFlight);
  for (size_t s = 0; s < batch.sequences.size(); ++s)
    for (uint32_t pool = 0; pool < n_pools; ++pool)
      std::copy(batch.sequences[s].tables[pool].begin(), batch.sequences[s].tables[pool].end(),
                inputs_.host_tables() + starts[s][pool]);

  using I = StepInputs;
  const auto put = [&](I::Array array, RowList& list, uint32_t value) { inputs_.host(array)[list.n++] = value; };
  uint32_t n_logits = 0;
  for (uint32_t i = 0; i < rows.n_rows; ++i) {
    const Row& r = batch.rows[i];
    inputs_.host(I::kTokens)[i] = uint32_t(r.token);
    inputs_.host(I::kPositions)[i] = r.position;
    std::copy(starts[r.sequence].begin(), starts[r.sequence].end(), inputs_.host_table_start() + uint64_t{i} * n_pools);
    const bool prompt = r.role == Role::kPrompt;
    put(prompt ? I::kPrompt : I::kGenerated, prompt ? rows.prompt : rows.generated, i);
    if (!r.wants_logits) continue;
    RowList& list = prompt ? rows.prompt_logits : rows.generated_logits;
    inputs_.host(prompt ? I::kPromptDest : I::kGeneratedDest)[list.n] = n_logits++;
    put(prompt ? I::kPromptLogits : I::kGeneratedLogits, list, i);
  }
  rows.tokens = reinterpret_cast<const int32_t*>(inputs_.device(I::kTokens));
  rows.positions = inputs_.device(I::kPositions);
  rows.table_start = inputs_.device_table_start();
  rows.tables = inputs_.device_tables();
  rows.prompt.index = inputs_.device(I::kPrompt);
  rows.generated.index = inputs_.device(I::kGenerated);
  rows.prompt_logits.index = inputs_.device(I::kPromptLogits);
  rows.prompt_logits.dest = inputs_.device(I::kPromptDest);
  rows.generated_logits.index = inputs_.device(I::kGeneratedLogits);
  rows.generated_logits.dest = inputs_.device(I::kGeneratedDest);
  rows.runs = take_in_runs(batch);
  // Its token is on the device. The persistent kernel reads nothing else but the tables there.
  if (follows && persistent_ && inputs_.repeats_tables(table_words)) return rows;
  HC_TRY(inputs_.send(follows ? I::kPositions : I::kTokens, table_words, stream_));
  return rows;
}

Result<void> CudaExecutor::reserve_logits(const Wanted& wanted) {
  const uint64_t row_bytes = uint64_t{program_.vocabulary} * sizeof(float);
  if (const uint64_t bytes = wanted.n_rows() * row_bytes; bytes > logits_.bytes()) {
    graphs_.clear();
    HC_ASSIGN(logits_, Memory::allocate(bytes, "logits"));
  }
  if (const uint64_t bytes = wanted.n_all * row_bytes; bytes > logits_host_.bytes()) {
    HC_ASSIGN(logits_host_, Memory::allocate(bytes, "logits", Memory::Place::kHost));
  }
  return {};
}

// Of the rows that want all their logits, one after another.
Result<void> CudaExecutor::fetch_logits(const Batch& batch, const Wanted& wanted) {
  const uint64_t vocabulary = program_.vocabulary;
  const auto fetch = [&](uint64_t to, uint64_t from, uint64_t n_rows) {
    return check_cuda(
        cudaMemcpyAsync(logits_host_.as<float>() + to * vocabulary, logits_.as<float>() + from * vocabulary,
                        n_rows * vocabulary * sizeof(float), cudaMemcpyDeviceToHost, stream_),
        fmt::format("fetching {} logits", n_rows * vocabulary));
  };
  if (wanted.n_top == 0) return fetch(0, 0, wanted.n_all);
  uint64_t to = 0, from = 0;
  for (const Row& row : batch.rows) {
    if (!row.wants_logits) continue;
    if (row.n_top == 0) HC_TRY(fetch(to++, from, 1));
    ++from;
  }
  return {};
}

void CudaExecutor::hand_out(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) const {
  if (!logits.empty()) std::memcpy(logits.data(), logits_host_.as(), logits.size_bytes());
  if (top.empty()) return;
  uint32_t index = 0;  // among rows that want any
  for (size_t n = 0; const Row& row : batch.rows) {
    if (!row.wants_logits) continue;
    if (row.n_top != 0) top[n++] = top_.of(index, row.n_top);
    ++index;
  }
}

Result<Graph> CudaExecutor::capture(const StepRows& rows) {
  HC_TRY(check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing a step"));
  const auto encoded = encoder_->encode(rows, ropes_.tables(), logits_.as<float>(), stream_);
  cudaGraph_t graph = nullptr;
  const auto ended = check_cuda(cudaStreamEndCapture(stream_, &graph), "capturing a step");
  HC_TRY(encoded);
  HC_TRY(ended);
  cudaGraphExec_t executable = nullptr;
  const auto made = check_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiating a step's graph");
  (void)cudaGraphDestroy(graph);
  HC_TRY(made);
  return Graph(executable);
}

// Generated rows run persistently where they can. Else few of them repeat their shape token after token: worth a graph.
Result<void> CudaExecutor::launch(const Batch& batch, const StepRows& rows) {
  if (persistent_ && rows.prompt.n == 0)
    return persistent_->issue(batch, rows, ropes_.tables(), part_logits_, stream_, times_.get());
  if (times_) {  // a graph would not tell
    HC_TRY(encoder_->encode(rows, ropes_.tables(), part_logits_, stream_, times_.get()));
    HC_TRY(check_cuda(cudaStreamSynchronize(stream_), "a profiled step"));
    return times_->add(0, program_.steps.size());
  }
  const bool is_first_part = part_logits_ == logits_.as<float>();  // a graph's logits go there
  if (rows.prompt.n != 0 || rows.n_rows > kMostGraphRows || !is_first_part)
    return encoder_->encode(rows, ropes_.tables(), part_logits_, stream_);
  const Shape shape{rows.n_rows, rows.generated_logits.n, rows.n_positions};
  auto found = graphs_.find(shape);
  if (found == graphs_.end()) {
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
    HC_ASSIGN(Graph graph, capture(rows));
    found = graphs_.emplace(shape, std::move(graph)).first;
  }
  return check_cuda(cudaGraphLaunch(found->second.get(), stream_), "launching a step");
}

Result<void> CudaExecutor::step(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) {
  HC_CHECK(n_in_flight_ == 0, "{} in flight", n_in_flight_);
  HC_TRY(std::exchange(pending_, {}));
  auto done = run(batch, logits, top);
  if (!done) idle();
  return done;
}

// After a failure: what was issued before it may still read a step's inputs.
void CudaExecutor::idle() {
  if (cudaStreamSynchronize(stream_) != cudaSuccess) (void)cudaGetLastError();
}

Result<void> CudaExecutor::issue(const Batch& batch, bool follows) {
  HC_CHECK(n_in_flight_ < kMostInFlight && follows == (n_in_flight_ != 0), "{} in flight", n_in_flight_);
  HC_TRY(std::exchange(pending_, {}));
  if (!follows) token_ = {};
  HC_TRY(token_);
  HC_TRY(validate(batch));
  HC_ASSIGN(const Wanted wanted, check_wanted(batch, program_.vocabulary, 0, 1));
  if (batch.rows.size() != 1 || batch.rows[0].role != Role::kGenerated)
    return invalid("a step in flight is one generated row");
  HC_TRY(reserve_logits(wanted));
  if (persistent_ && !follows) HC_TRY(persistent_->begin(stream_));
  part_logits_ = logits_.as<float>();
  const uint32_t slot = (first_in_flight_ + n_in_flight_) % kMostInFlight;
  auto issued = [&]() -> Result<void> {
    HC_ASSIGN(const StepRows rows, take_in(batch, follows));
    HC_TRY(launch(batch, rows));
    token_ = [&]() -> Result<void> {
      HC_TRY(top_.issue(logits_.as<float>(), wanted, slot, inputs_.device_token(), stream_));
      return check_cuda(cudaEventRecord(arrived_[slot], stream_), "marking the end of a step");
    }();
    return token_;
  }();
  if (!issued) {
    idle();
    return issued;
  }
  in_flight_top_[slot] = batch.rows[0].n_top;
  ++n_in_flight_;
  return {};
}

Result<TopLogits> CudaExecutor::collect() {
  HC_CHECK(n_in_flight_ != 0);
  const uint32_t slot = first_in_flight_;
  Result<void> done = check_cuda(cudaEventSynchronize(arrived_[slot]), "a step in flight");
  if (done && persistent_) done = persistent_->finish(stream_);
  if (!done) {
    idle();
    n_in_flight_ = 0;
    return tl::unexpected(done.error());
  }
  first_in_flight_ = (slot + 1) % kMostInFlight;
  --n_in_flight_;
  return top_.of_slot(slot, in_flight_top_[slot]);
}

Result<void> CudaExecutor::run_part(const Batch& batch) {
  HC_ASSIGN(const StepRows rows, take_in(batch, /*follows=*/false));
  HC_TRY(launch(batch, rows));
  part_logits_ += uint64_t{rows.prompt_logits.n + rows.generated_logits.n} * program_.vocabulary;
  return {};
}

Result<void> CudaExecutor::run(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) {
  HC_TRY(validate(batch));
  HC_ASSIGN(const Wanted wanted, check_wanted(batch, program_.vocabulary, logits.size(), top.size()));
  HC_TRY(reserve_logits(wanted));
  if (persistent_) HC_TRY(persistent_->begin(stream_));
  // One generated row's logits go to the host as they are made; those of several rows would go in small pieces.
  const bool direct =
      persistent_ && batch.rows.size() == 1 && batch.rows[0].role == Role::kGenerated && wanted.n_top == 0;
  part_logits_ = (direct ? logits_host_ : logits_).as<float>();
  // Roles run apart, as they run differently; in the order of the rows, as later ones may attend to earlier ones.
  for (size_t first = 0, end; first < batch.rows.size(); first = end) {
    end = size_t(std::find_if(batch.rows.begin() + ptrdiff_t(first), batch.rows.end(),
                              [&](const Row& r) { return r.role != batch.rows[first].role; }) -
                 batch.rows.begin());
    // The step's inputs are sent from one buffer.
    if (first != 0) HC_TRY(check_cuda(cudaStreamSynchronize(stream_), "a part of a step"));
    HC_TRY(run_part({batch.rows.subspan(first, end - first), batch.sequences}));
  }
  HC_TRY(top_.issue(logits_.as<float>(), wanted, stream_));
  if (wanted.n_all != 0 && !direct) HC_TRY(fetch_logits(batch, wanted));
  HC_TRY(check_cuda(cudaStreamSynchronize(stream_), fmt::format("a step of {} rows", batch.rows.size())));
  if (persistent_) HC_TRY(persistent_->finish(stream_));
  hand_out(batch, logits, top);
  return {};
}

}  // namespace

std::string description(const DeviceInfo& device) {
  return fmt::format("cuda: {}, compute capability {}.{}, {} multiprocessors, {} MiB", device.name, device.major,
                     device.minor, device.multiprocessors, device.memory_bytes >> 20);
}

Result<void> check_program(const program::Program& program, const CompileOptions& options) {
  HC_TRY(check_ops(program));
  HC_TRY(check_exact_activations(options.activations, "cuda"));
  return KvCache::check(program, options.cache_type);
}

Plan make_plan(const program::Program& program, const CompileOptions& options, const DeviceInfo& device) {
  std::vector<std::string> obstacles = persistent_obstacles(program, options.cache_type);
  if (const std::string why = persistent_device_obstacle(device); !why.empty()) obstacles[0] = why;
  Plan plan{.backend = description(device), .steps = plan_steps(program, obstacles)};
  const bool persists = runs_persistently(program, options, device);
  const StepMemory memory = place_step_memory(program, options, prompt_path(program, device), persists);
  if (!memory.layout.overflow()) plan.buffer_bytes = memory.layout.total();
  if (persists && plan.buffer_bytes != 0) {  // 0: not known
    const auto more = PersistentStep::needed_bytes(program, options, device);
    plan.buffer_bytes = more ? plan.buffer_bytes + *more : 0;
  }
  if (const std::string why = fine_prompts_reason(program, device); !why.empty())
    for (StepPlan& step : plan.steps) step.why_not_fast += (step.why_not_fast.empty() ? "" : "; ") + why;
  return plan;
}

Result<std::unique_ptr<Executor>> make_executor(const program::Program& program, const CompileOptions& options,
                                                const DeviceInfo& device) {
  if (options.max_rows == 0) return invalid("an executor for batches of no rows");
  HC_TRY(check_program(program, options));
  auto executor = std::make_unique<CudaExecutor>(program, options, device);
  HC_TRY(executor->set_up());
  return executor;
}

}  // namespace honeycrisp::backend::cuda
