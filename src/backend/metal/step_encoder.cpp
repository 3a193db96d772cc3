#include "backend/metal/step_encoder.h"

#include "base/check.h"

#include <algorithm>

namespace honeycrisp::backend::metal {
namespace {

bool overlap(const View& a, const View& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace

void StepEncoder::pipeline(const Pipeline& pipeline) {
  encoder_.set_pipeline(pipeline);
  // An encoder keeps lengths, and counts them to whatever kernel comes next: with its own variables they could exceed
  // what there is. 16 bytes, because 0 may not be a length.
  for (uint32_t i = 0; i < most_memory_index_; ++i) encoder_.set_threadgroup_memory(i, 16);
  most_memory_index_ = 0;
}

void StepEncoder::read(uint32_t index, const View& view) {
  encoder_.set_buffer(index, view);
  next_.push_back({view, Access::kRead});
}

void StepEncoder::write(uint32_t index, const View& view) {
  encoder_.set_buffer(index, view);
  next_.push_back({view, Access::kWrite});
}

void StepEncoder::constant(uint32_t index, const View& view) { encoder_.set_buffer(index, view); }

void StepEncoder::threadgroup_memory(uint32_t index, uint32_t bytes) {
  HC_CHECK(bytes % 16 == 0 && bytes <= kMostThreadgroupMemory);
  encoder_.set_threadgroup_memory(index, bytes);
  most_memory_index_ = std::max(most_memory_index_, index + 1);
}

void StepEncoder::dispatch(Size threadgroups, Size threads_per_threadgroup) {
  const bool meets = std::any_of(next_.begin(), next_.end(), [&](const Use& n) {
    return std::any_of(unordered_.begin(), unordered_.end(), [&](const Use& u) {
      return (n.access == Access::kWrite || u.access == Access::kWrite) && overlap(n.view, u.view);
    });
  });
  if (meets) {
    encoder_.barrier();
    ++barriers_;
    unordered_.clear();
  }
  encoder_.dispatch(threadgroups, threads_per_threadgroup);
  ++launches_;
  unordered_.insert(unordered_.end(), next_.begin(), next_.end());
  next_.clear();
}

}  // namespace honeycrisp::backend::metal
