#include "op_harness.h"

#include "backend/reference/ops.h"
#include "backend/rope_table.h"
#include "base/check.h"

#include <algorithm>
#include <cstring>

namespace honeycrisp::backend::metal::testing {

std::vector<const test_support::OpCase*> cases_of(std::string_view prefix) {
  std::vector<const test_support::OpCase*> all;
  for (const test_support::OpCase& c : test_support::op_cases())
    if (c.name.starts_with(prefix)) all.push_back(&c);
  return all;
}

Buffers random_rows(const program::Program& program, std::span<const uint64_t> seeds) {
  Buffers b;
  for (const program::Buffer& buffer : program.buffers) {
    b.emplace_back();
    for (const uint64_t seed : seeds) {
      test_support::Random random(seed + 1000 * b.size());
      const auto row = random.floats(buffer.width, -2, 2);
      b.back().insert(b.back().end(), row.begin(), row.end());
    }
  }
  return b;
}

ReferenceOps::ReferenceOps(const program::Program& program, CacheType type, uint32_t n_pages, uint32_t n_states)
    : program_(program), kv_(program, type), states_(program) {
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool) HC_CHECK(kv_.reserve(pool, n_pages).has_value());
  HC_CHECK(states_.reserve(n_states).has_value());
}

void ReferenceOps::run(const program::Op& op, const Batch& batch, Buffers& buffers) {
  reference::StepState state{program_, batch, {buffers.begin(), buffers.end()}, kv_, states_, {}};
  std::visit([&](const auto& o) { reference::run(state, o); }, op);
}

DeviceOps::DeviceOps(const program::Program& program, CacheType type, const soft::DeviceOptions& options,
                     uint32_t n_pages, uint32_t n_states, uint32_t n_positions)
    : DeviceOps(program, type, soft::Device::create(options).value(), {}, n_pages, n_states, n_positions) {}

DeviceOps::DeviceOps(const program::Program& program, CacheType type, std::shared_ptr<soft::Device> device,
                     SoftLibraries libraries, uint32_t n_pages, uint32_t n_states, uint32_t n_positions)
    : program_(program),
      soft_(std::move(device)),
      device_([&] {
        libraries.push_back(soft_->open_library("backend_kernels").value());
        return soft_device_around(soft_, std::move(libraries));
      }()),
      pipelines_(*device_),
      cache_(*device_, program, type) {
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool) HC_CHECK(cache_.reserve(pool, n_pages).has_value());
  HC_CHECK(cache_.reserve_states(n_states).has_value());
  for (const program::Weight& w : program.weights) weights_.push_back(copy(w.data, w.bytes));
  for (const program::Vector& v : program.vectors) vectors_.push_back(copy(v.values));
  for (const program::Rope& rope : program.ropes) ropes_.push_back(copy(make_rope_table(rope, n_positions)));
}

PartRows DeviceOps::part_of(const Batch& batch) const {
  PartRows part;
  part.n = uint32_t(batch.rows.size());
  part.role = batch.rows[0].role;
  std::vector<int32_t> tokens;
  std::vector<uint32_t> positions, starts, tables, states;
  std::vector<std::vector<uint32_t>> sequence_starts;
  for (const SequencePages& s : batch.sequences) {
    sequence_starts.emplace_back();
    for (const auto& table : s.tables) {
      sequence_starts.back().push_back(uint32_t(tables.size()));
      tables.insert(tables.end(), table.begin(), table.end());
    }
  }
  for (uint32_t i = 0; i < part.n; ++i) {
    const Row& row = batch.rows[i];
    const bool follows = i != 0 && batch.rows[i - 1].sequence == row.sequence;
    if (follows)
      ++part.runs.back().n_rows;
    else
      part.runs.push_back({i, 1, row.position});
    part.n_positions = std::max(part.n_positions, row.position + 1);
    tokens.push_back(row.token);
    positions.push_back(row.position);
    starts.insert(starts.end(), sequence_starts[row.sequence].begin(), sequence_starts[row.sequence].end());
    states.push_back(batch.sequences[row.sequence].state);
  }
  part.tokens = copy(tokens);
  part.positions = copy(positions);
  if (!starts.empty()) part.table_start = copy(starts);
  if (!tables.empty()) part.tables = copy(tables);
  part.states = copy(states);
  return part;
}

Result<void> DeviceOps::run(const program::Op& op, const Batch& batch, Buffers& values) {
  buffers_.clear();
  for (const std::vector<float>& b : values) buffers_.push_back(copy(b));
  const PartRows rows = part_of(batch);
  HC_ASSIGN(auto commands, device_->command_buffer("op"));
  StepEncoder encoder(commands->encoder());
  OpContext context{program_, pipelines_, encoder, *this, rows, std::nullopt};
  HC_TRY(std::visit([&](const auto& o) { return encode(context, o); }, op));
  HC_TRY(flush_residual(context));
  launches_ = encoder.launches();
  commands->commit();
  HC_TRY(commands->wait());
  for (size_t i = 0; i < values.size(); ++i)
    std::memcpy(values[i].data(), buffers_[i].buffer->contents(), values[i].size() * sizeof(float));
  return {};
}

std::string DeviceOps::reports() const {
  std::string all;
  for (const soft::Report& r : soft_->reports()) all += to_string(r) + "\n";
  return all;
}

View DeviceOps::copy(const void* data, uint64_t bytes) const {
  const auto buffer = device_->allocate(std::max<uint64_t>(bytes, 16), "").value();
  std::memcpy(buffer->contents(), data, bytes);
  memory_.push_back(buffer);
  return {buffer.get(), 0, bytes};
}

View DeviceOps::buffer(program::BufferId id) const { return buffers_[id]; }
WeightView DeviceOps::weight(const program::Matrix& m) const {
  const program::Weight& w = program_.weight(m);
  const uint64_t row = w.row_bytes(), skipped = m.first_row * row;
  const uint64_t end = ((w.slices - 1) * uint64_t{w.rows} + m.rows) * row;
  return {{weights_[m.weight].buffer, skipped, end}, row, w.rows * row};
}
View DeviceOps::vector(program::VectorId id) const { return vectors_[id]; }
View DeviceOps::rope(program::RopeId id) const { return ropes_[id]; }
CacheView DeviceOps::cache(program::CacheId id) const { return cache_.view(program_.caches[id]); }
StateView DeviceOps::state(program::StateId id) const { return cache_.state(id); }
Result<View> DeviceOps::scratch(uint64_t bytes) {
  HC_ASSIGN(auto buffer, device_->allocate(bytes, "scratch"));
  memory_.push_back(buffer);
  return View{buffer.get(), 0, bytes};
}

}  // namespace honeycrisp::backend::metal::testing
