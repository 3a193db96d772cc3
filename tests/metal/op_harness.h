// One op at a time, through its encode function on the software device and through `reference`: what stands between an
// op's kernels and a whole step (executor, plans, roles of a batch) is left out, so that a test can set every row.
#pragma once

#include "backend/backend.h"
#include "backend/metal/kv_cache.h"
#include "backend/metal/op_encoder.h"
#include "backend/metal/soft/device.h"
#include "backend/metal/soft_device.h"
#include "backend/reference/kv_store.h"
#include "backend/reference/state_store.h"
#include "support/op_cases.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::backend::metal::testing {

/// Values of all buffers of a program, [buffers][rows · width].
using Buffers = std::vector<std::vector<float>>;

/// The cases of op_cases.h whose names begin so.
std::vector<const test_support::OpCase*> cases_of(std::string_view prefix);

/// Rows of every buffer, each from the seed that stands for it.
Buffers random_rows(const program::Program& program, std::span<const uint64_t> seeds);

/// A case's program and the last op of the kind in it (where there are two, the second's offsets count).
template <class Op>
struct OpOfCase {
  test_support::TinyProgram tiny;
  const Op* op = nullptr;
  explicit OpOfCase(const test_support::OpCase& c) : tiny(c.build()) {
    for (const program::Step& step : tiny.program.steps)
      if (const auto* found = std::get_if<Op>(&step.op)) op = found;
  }
};

/// A cache and states of `reference`.
class ReferenceOps {
 public:
  ReferenceOps(const program::Program& program, CacheType type, uint32_t n_pages, uint32_t n_states);
  void run(const program::Op& op, const Batch& batch, Buffers& buffers);

 private:
  const program::Program& program_;
  reference::KvStore kv_;
  reference::StateStore states_;
};

/// A cache and states on the device. Everything of a batch has one role.
class DeviceOps final : public Places {
 public:
  DeviceOps(const program::Program& program, CacheType type, const soft::DeviceOptions& options, uint32_t n_pages,
            uint32_t n_states, uint32_t n_positions);
  /// A kernel is that of the first library that has it.
  DeviceOps(const program::Program& program, CacheType type, std::shared_ptr<soft::Device> device,
            SoftLibraries libraries, uint32_t n_pages, uint32_t n_states, uint32_t n_positions);
  /// Error: of encoding or of the device.
  Result<void> run(const program::Op& op, const Batch& batch, Buffers& buffers);
  std::string reports() const;                     // of a checking device
  uint32_t launches() const { return launches_; }  // of the last run

  View buffer(program::BufferId) const override;
  WeightView weight(const program::Matrix&) const override;
  View vector(program::VectorId) const override;
  View rope(program::RopeId) const override;
  CacheView cache(program::CacheId) const override;
  StateView state(program::StateId) const override;
  Result<View> scratch(uint64_t bytes) override;
  void release(const View&) override {}

 private:
  View copy(const void* data, uint64_t bytes) const;
  template <class T>
  View copy(const std::vector<T>& values) const {
    return copy(values.data(), values.size() * sizeof(T));
  }
  PartRows part_of(const Batch& batch) const;

  const program::Program& program_;
  const std::shared_ptr<soft::Device> soft_;
  const std::shared_ptr<Device> device_;
  Pipelines pipelines_;
  KvCache cache_;
  std::vector<View> weights_, vectors_, ropes_;
  std::vector<View> buffers_;                            // of the running step
  mutable std::vector<std::shared_ptr<Buffer>> memory_;  // all that lives as long as this
  uint32_t launches_ = 0;
};

}  // namespace honeycrisp::backend::metal::testing
