// See toy_backend.h.
#include "engine/testing/toy_backend.h"

#include "base/check.h"

#include <algorithm>
#include <map>
#include <new>
#include <set>

namespace honeycrisp::engine::toy {
namespace {

constexpr uint64_t kGarbage = 0xDEADBEEFDEADBEEF;  // fresh pages: reading one unwritten shows

constexpr float kCertain = 100;  // a logit far above all others

/// splitmix64's finalizer (Steele, Lea and Flood, 2014).
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

/// One position through all layers; `cell(layer, position)` is where the layer's "key" of a position lives, `state`
/// what the recurrent layers know of the positions before.
template <class Cell>
uint64_t run_position(const program::Program& program, int32_t token, uint32_t position, const Cell& cell,
                      std::span<uint64_t> state) {
  uint64_t hidden = mix(uint64_t(token) << 32 | position);
  for (uint32_t layer = 0; layer < program.pools.size(); ++layer) {
    const uint32_t window = program.pools[layer].window;
    cell(layer, position) = mix(hidden + layer);
    uint64_t attended = layer;
    for (uint32_t p = window == 0 || position < window ? 0 : position - window + 1; p <= position; ++p)
      attended = mix(attended ^ cell(layer, p) ^ p);
    hidden = mix(hidden ^ attended);
  }
  for (uint64_t& memory : state) {
    memory = mix((position == 0 ? 0 : memory) ^ mix(hidden));
    hidden = mix(hidden ^ memory);
  }
  return hidden;
}

void write_logits(uint64_t hidden, std::span<float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = float(mix(hidden ^ i) >> 40) / float(1 << 22);
}

}  // namespace

program::Program make_program(std::vector<uint32_t> windows, uint32_t vocabulary, uint32_t recurrent) {
  program::Program program;
  program.vocabulary = vocabulary;
  program.n_layers = uint32_t(windows.size()) + recurrent;
  program.states.resize(recurrent, {.n_heads = 1, .key_dim = 2, .value_dim = 2, .channels = 6, .kernel_size = 2});
  for (uint32_t i = 0; i < windows.size(); ++i) {
    program.pools.push_back({.n_kv_heads = 1, .key_dim = 2, .value_dim = 2, .window = windows[i], .n_layers = 1});
    program.caches.push_back({.n_kv_heads = 1, .key_dim = 2, .value_dim = 2, .window = windows[i], .pool = i});
  }
  return program;
}

std::vector<float> expected_logits(const program::Program& program, std::span<const int32_t> tokens) {
  std::vector<std::vector<uint64_t>> cells(program.pools.size(), std::vector<uint64_t>(tokens.size()));
  std::vector<uint64_t> state(program.states.size());
  uint64_t hidden = 0;
  const auto cell = [&](uint32_t layer, uint32_t at) -> uint64_t& { return cells[layer][at]; };
  for (uint32_t p = 0; p < tokens.size(); ++p) hidden = run_position(program, tokens[p], p, cell, state);
  std::vector<float> logits(program.vocabulary);
  write_logits(hidden, logits);
  return logits;
}

Executor::Executor(const program::Program& program, std::shared_ptr<Control> control,
                   const backend::CompileOptions& options)
    : HostExecutor(program, options), program_(&program), control_(std::move(control)), pools_(program.pools.size()) {}

Result<void> Executor::reserve_pages(uint32_t pool, uint32_t n_pages) {
  if (n_pages > control_->max_pages) return Fail(ErrorCode::kOutOfMemory, "toy memory is full");
  HC_CHECK(n_pages >= pools_[pool].size());
  pools_[pool].resize(n_pages, Page(program::kPagePositions, kGarbage));
  return {};
}

// Runs at once, as far as a step that runs later can be: what the caller may do meanwhile must not matter.
Result<void> Executor::issue(const backend::Batch& batch, bool follows) {
  HC_CHECK(in_flight_.size() < control_->most_in_flight && follows == !in_flight_.empty());
  backend::Row row = batch.rows[0];
  HC_CHECK(batch.rows.size() == 1 && row.n_top != 0 && row.role == backend::Role::kGenerated);
  TopLogits top;
  Result<void> done;
  if (follows && !in_flight_.back()) {
    done = tl::unexpected(in_flight_.back().error());
  } else {
    if (follows) row.token = in_flight_.back()->tokens[0];
    issuing_ = true;
    done = step({.rows = {&row, 1}, .sequences = batch.sequences}, {}, {&top, 1});
    issuing_ = false;
  }
  if (done) {
    in_flight_.emplace_back(top);
  } else {
    in_flight_.emplace_back(tl::unexpected(done.error()));
  }
  ++control_->issued;
  control_->most_issued = std::max<uint64_t>(control_->most_issued, in_flight_.size());
  return {};
}

Result<TopLogits> Executor::collect() {
  HC_CHECK(!in_flight_.empty());
  const Result<TopLogits> oldest = in_flight_.front();
  in_flight_.pop_front();
  if (!oldest) in_flight_.clear();
  return oldest;
}

void Executor::copy_page(uint32_t pool, backend::PageId from, backend::PageId to) {
  HC_CHECK(in_flight_.empty());
  ++control_->copies;
  pools_[pool][to] = pools_[pool][from];
}

Result<void> Executor::reserve_states(uint32_t n_states) {
  if (n_states > control_->max_states) return Fail(ErrorCode::kOutOfMemory, "toy memory is full");
  HC_CHECK(n_states >= states_.size());
  states_.resize(n_states, State(program_->states.size(), kGarbage));
  return {};
}

void Executor::copy_state(backend::StateId from, backend::StateId to) {
  ++control_->state_copies;
  states_[to] = states_[from];
}

uint64_t Executor::run_row(const backend::Row& row, const backend::SequencePages& pages) {
  const auto cell = [&](uint32_t layer, uint32_t p) -> uint64_t& {
    const auto table = pages.tables[layer];
    HC_CHECK(p / program::kPagePositions < table.size(), "position {}", p);
    const backend::PageId page = table[p / program::kPagePositions];
    HC_CHECK(page < pools_[layer].size(), "position {} of pool {} has page {}", p, layer, page);
    return pools_[layer][page][p % program::kPagePositions];
  };
  if (program_->states.empty()) return run_position(*program_, row.token, row.position, cell, {});
  return run_position(*program_, row.token, row.position, cell, states_[pages.state]);
}

/// What one sequence writes no other of the batch reads or writes.
void Executor::check_exclusive(const backend::Batch& batch) const {
  std::map<std::pair<size_t, backend::PageId>, uint32_t> writer;
  for (const backend::Row& row : batch.rows) {
    for (size_t pool = 0; pool < pools_.size(); ++pool)
      writer[{pool, batch.sequences[row.sequence].tables[pool][row.position / program::kPagePositions]}] = row.sequence;
  }
  std::set<backend::StateId> states;
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const backend::StateId state = batch.sequences[s].state;
    if (!program_->states.empty())
      HC_CHECK(state < states_.size() && states.insert(state).second, "state {} is absent or shared", state);
    for (size_t pool = 0; pool < pools_.size(); ++pool) {
      for (const backend::PageId page : batch.sequences[s].tables[pool]) {
        const auto found = writer.find({pool, page});
        HC_CHECK(found == writer.end() || found->second == s, "page {} is written and shared", page);
      }
    }
  }
}

Result<void> Executor::compute(const backend::Batch& batch, std::span<float> logits) {
  HC_CHECK(issuing_ || in_flight_.empty());
  check_exclusive(batch);
  if (control_->steps >= control_->fail_after) {
    if (!program_->states.empty())
      for (const backend::SequencePages& pages : batch.sequences)
        std::fill(states_[pages.state].begin(), states_[pages.state].end(), kGarbage);
    if (control_->throws) throw std::bad_alloc();
    return Fail(ErrorCode::kInternal, "toy step failed");
  }
  ++control_->steps;
  control_->rows += batch.rows.size();
  control_->largest_batch = std::max(control_->largest_batch, batch.rows.size());

  for (const backend::Row& row : batch.rows) {
    control_->roles.push_back(row.role);
    const uint64_t hidden = run_row(row, batch.sequences[row.sequence]);
    if (!row.wants_logits) continue;
    control_->tops.push_back(row.n_top);
    write_logits(hidden, logits.first(program_->vocabulary));
    if (!control_->script.empty()) logits[size_t(control_->script[row.position % control_->script.size()])] = kCertain;
    logits = logits.subspan(program_->vocabulary);
  }
  HC_CHECK(logits.empty(), "{} logits too many", logits.size());
  return {};
}

}  // namespace honeycrisp::engine::toy
