// A device that runs nothing: what ops encode on it is recorded, so that a plan counts what a step would really do.
#pragma once

#include "backend/metal/device.h"

#include <string>
#include <vector>

namespace honeycrisp::backend::metal {

class RecordingEncoder final : public Encoder {
 public:
  std::vector<std::string> kernels;  // of each dispatch

  void set_pipeline(const Pipeline& pipeline) override { pipeline_ = pipeline.name(); }
  void set_buffer(uint32_t, const View&) override {}
  void set_bytes(uint32_t, std::span<const std::byte>) override {}
  void set_threadgroup_memory(uint32_t, uint32_t) override {}
  void dispatch(Size, Size) override { kernels.push_back(pipeline_); }
  void barrier() override {}

 private:
  std::string pipeline_;
};

class PlanDevice final : public Device {
 public:
  std::string describe() const override { return "no device"; }
  uint64_t most_buffer_bytes() const override { return UINT64_MAX; }
  uint64_t recommended_memory_bytes() const override { return 0; }
  Result<std::shared_ptr<Buffer>> allocate(uint64_t bytes, std::string) override {
    return std::make_shared<PlanBuffer>(bytes);
  }
  Result<std::shared_ptr<Buffer>> wrap(std::byte*, uint64_t bytes, std::function<void()>, std::string) override {
    return std::make_shared<PlanBuffer>(bytes);
  }
  Result<std::shared_ptr<const Pipeline>> pipeline(std::string_view, std::string_view kernel,
                                                   std::span<const Constant>) override {
    return std::make_shared<PlanPipeline>(kernel);
  }
  Result<std::unique_ptr<CommandBuffer>> command_buffer(std::string) override {
    return std::make_unique<PlanCommands>();
  }

 private:
  /// Memory comes into being when somebody writes to it.
  class PlanBuffer final : public Buffer {
   public:
    explicit PlanBuffer(uint64_t bytes) : bytes_(bytes) {}
    uint64_t bytes() const override { return bytes_; }
    std::byte* contents() override {
      if (memory_.empty()) memory_.resize(bytes_);
      return memory_.data();
    }

   private:
    uint64_t bytes_;
    std::vector<std::byte> memory_;
  };
  class PlanPipeline final : public Pipeline {
   public:
    explicit PlanPipeline(std::string_view name) : name_(name) {}
    uint32_t most_threads() const override { return 1024; }
    std::string_view name() const override { return name_; }

   private:
    std::string name_;
  };
  class PlanCommands final : public CommandBuffer {
   public:
    Encoder& encoder() override { return encoder_; }
    void commit() override {}
    Result<void> wait() override { return {}; }
    double gpu_seconds() const override { return 0; }

   private:
    RecordingEncoder encoder_;
  };
};

}  // namespace honeycrisp::backend::metal
