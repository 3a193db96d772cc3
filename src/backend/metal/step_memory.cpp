#include "backend/metal/step_memory.h"

#include "backend/rope_table.h"
#include "base/checked.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace honeycrisp::backend::metal {
namespace {

constexpr uint32_t kFirstPositions = 1024;
constexpr uint64_t kVectorAlignment = 16;

Result<std::shared_ptr<Buffer>> upload(Device& device, std::span<const float> values, std::string label) {
  HC_ASSIGN(auto buffer, device.allocate(std::max<uint64_t>(values.size_bytes(), 4), std::move(label)));
  std::memcpy(buffer->contents(), values.data(), values.size_bytes());
  return buffer;
}

}  // namespace

Result<std::unique_ptr<StepMemory>> StepMemory::make(Device& device, const program::Program& program,
                                                     const CompileOptions& options) {
  std::unique_ptr<StepMemory> made(new StepMemory(device, program, options));
  for (const program::Buffer& b : program.buffers) {
    const auto elements = checked_mul<uint64_t>(options.max_rows, b.width);
    const auto bytes = elements ? checked_mul<uint64_t>(*elements, sizeof(float)) : std::nullopt;
    if (!bytes || *bytes > device.most_buffer_bytes())
      return fail(ErrorCode::kOutOfMemory, "buffer '{}' for {} rows of {} is more than a buffer of this device holds",
                  b.name, options.max_rows, b.width);
    HC_ASSIGN(auto buffer, device.allocate(std::max<uint64_t>(*bytes, 4), b.name));
    made->buffers_.push_back(std::move(buffer));
  }
  std::vector<float> vectors;
  std::vector<uint64_t> offsets;
  for (const program::Vector& v : program.vectors) {
    offsets.push_back(vectors.size() * sizeof(float));
    vectors.insert(vectors.end(), v.values.begin(), v.values.end());
    vectors.resize(round_up(vectors.size(), size_t{kVectorAlignment / sizeof(float)}));
  }
  HC_ASSIGN(made->vectors_, upload(device, vectors, "norms and biases"));
  for (size_t i = 0; i < program.vectors.size(); ++i)
    made->vector_views_.push_back({made->vectors_.get(), offsets[i], program.vectors[i].values.size() * sizeof(float)});
  made->ropes_.resize(program.ropes.size());
  HC_TRY(made->reserve_positions(1));
  HC_ASSIGN(made->weights_, Weights::wrap(device, program));
  if (options.progress) {
    uint64_t total = 0;
    for (const program::Weight& w : program.weights) total += w.bytes;
    options.progress(total, total);
  }
  return made;
}

Result<void> StepMemory::reserve_positions(uint32_t n_positions) {
  if (n_positions <= n_positions_) return {};
  const uint32_t grown = std::max(kFirstPositions, std::bit_ceil(n_positions));
  std::vector<std::shared_ptr<Buffer>> ropes;
  for (const program::Rope& rope : program_.ropes) {
    HC_ASSIGN(auto table, upload(device_, make_rope_table(rope, grown), "rope table"));
    ropes.push_back(std::move(table));
  }
  ropes_ = std::move(ropes);
  n_positions_ = grown;
  return {};
}

std::span<float> StepMemory::host_buffer(program::BufferId id, uint32_t n_rows) {
  return {reinterpret_cast<float*>(buffers_[id]->contents()), size_t{n_rows} * program_.buffers[id].width};
}

uint64_t StepMemory::memory_bytes() const {
  uint64_t bytes = pool_.memory_bytes() + vectors_->bytes();
  for (const auto& b : buffers_) bytes += b->bytes();
  for (const auto& r : ropes_) bytes += r->bytes();
  return bytes;
}

}  // namespace honeycrisp::backend::metal
