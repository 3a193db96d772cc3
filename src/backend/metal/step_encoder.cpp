#include "backend/metal/step_encoder.h"

#include "base/check.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace honeycrisp::backend::metal {
namespace {

bool overlap(const View& a, const View& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace

void StepEncoder::pipeline(const Pipeline& pipeline) {
  pipeline_ = &pipeline;
  encoder_.set_pipeline(pipeline);
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
  memory_next_ |= 1u << index;
}

void StepEncoder::dispatch(Size threadgroups, Size threads_per_threadgroup) {
  HC_CHECK(threads_per_threadgroup.count() <= pipeline_->most_threads(), "{}: {} threads", pipeline_->name(),
           threads_per_threadgroup.count());
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
  for (uint32_t stale = memory_set_ & ~memory_next_; stale != 0; stale &= stale - 1)
    encoder_.set_threadgroup_memory(uint32_t(std::countr_zero(stale)), 0);
  memory_set_ = std::exchange(memory_next_, 0);
  encoder_.dispatch(threadgroups, threads_per_threadgroup);
  ++launches_;
  unordered_.insert(unordered_.end(), next_.begin(), next_.end());
  next_.clear();
}

}  // namespace honeycrisp::backend::metal
