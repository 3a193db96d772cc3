// One op of a program on the software device, through the backend's own encode functions: memory for its buffers with
// guards around them, weights, a command buffer, and what was reported. For tests of kernels; whole programs run
// through the executor.
#pragma once

#include "backend/metal/op_encoder.h"
#include "backend/metal/soft/device.h"
#include "backend/metal/soft_device.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace honeycrisp::backend::metal::testing {

class Rig : private Places {
 public:
  /// The project's kernels.
  explicit Rig(const soft::DeviceOptions& options = {});
  /// These kernels, and the project's for what they lack.
  Rig(std::shared_ptr<soft::Device> device, SoftLibraries libraries);
  ~Rig() override;

  program::Program program;
  std::shared_ptr<soft::Device> soft;

  program::Matrix add_weight(quant::Format format, uint32_t rows, uint32_t cols, std::vector<std::byte> bytes);
  /// In memory of the caller's, rows `row_bytes` apart.
  program::Matrix add_spread_weight(quant::Format format, uint32_t rows, uint32_t cols, std::byte* memory,
                                    uint64_t row_bytes, uint64_t bytes);
  program::VectorId add_vector(std::vector<float> values);
  program::Slice add_buffer(uint32_t width);  // all of its columns
  /// From now on buffers have so many rows, filled with NaN; `logits`: rows that want them.
  void set_rows(uint32_t n, Role role, std::vector<uint32_t> logits = {});
  void set_tokens(const std::vector<int32_t>& tokens);
  void fill(const program::Slice& slice, const std::vector<float>& values);  // [rows][width]
  std::vector<float> values(const program::Slice& slice) const;
  std::vector<float> logits() const;

  /// Encodes the ops into one command buffer, ends what is pending if `flush`, and waits. Empty, or what went wrong:
  /// an error, a report of the checking device, or a guard that was overwritten.
  std::string run(const std::vector<program::Op>& ops, bool flush = true);
  /// The same for whatever puts launches into the encoder.
  std::string encode(const std::function<Result<void>(StepEncoder&)>& put);
  View guarded(uint64_t bytes);
  uint32_t launches() const { return launches_; }
  uint32_t barriers() const { return barriers_; }
  Device& device() { return *device_; }
  Pipelines& pipelines() { return *pipelines_; }

 private:
  View buffer(program::BufferId) const override;
  WeightView weight(const program::Matrix&) const override;
  View vector(program::VectorId) const override;
  View rope(program::RopeId) const override { return {}; }
  CacheView cache(program::CacheId) const override { return {}; }
  StateView state(program::StateId) const override { return {}; }
  Result<View> scratch(uint64_t bytes) override;
  void release(const View&) override {}
  std::string guards() const;

  struct Spread {
    std::shared_ptr<Buffer> buffer;
    uint64_t row_bytes;
  };
  std::shared_ptr<Device> device_;
  std::unique_ptr<Pipelines> pipelines_;
  std::vector<std::shared_ptr<Buffer>> owned_;
  std::vector<View> views_;  // with a guard before and after each
  std::map<program::WeightId, Spread> weights_;
  std::map<program::VectorId, View> vectors_;
  std::vector<View> buffers_;
  PartRows rows_;
  uint32_t launches_ = 0, barriers_ = 0;
};

}  // namespace honeycrisp::backend::metal::testing
