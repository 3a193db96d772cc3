// The software device behind the interface that the backend's host code uses, for tests of single ops.
#pragma once

#include "backend/metal/device.h"
#include "backend/metal/soft/device.h"

namespace honeycrisp::backend::metal::testing {

struct AdaptedBuffer final : Buffer {
  std::shared_ptr<soft::Buffer> soft;
  explicit AdaptedBuffer(std::shared_ptr<soft::Buffer> b) : soft(std::move(b)) {}
  uint64_t bytes() const override { return soft->length(); }
  std::byte* contents() override { return static_cast<std::byte*>(soft->contents()); }
};

struct AdaptedPipeline final : Pipeline {
  std::shared_ptr<const soft::Pipeline> soft;
  std::string label;
  uint32_t most_threads() const override { return soft::kMaxThreads; }
  std::string_view name() const override { return label; }
};

struct AdaptedEncoder final : Encoder {
  std::shared_ptr<soft::Encoder> soft;
  void set_pipeline(const Pipeline& p) override { soft->set_pipeline(static_cast<const AdaptedPipeline&>(p).soft); }
  void set_buffer(uint32_t index, const View& v) override {
    soft->set_buffer(static_cast<AdaptedBuffer*>(v.buffer)->soft, v.offset, index, v.bytes);
  }
  void set_bytes(uint32_t index, std::span<const std::byte> b) override {
    soft->set_bytes({reinterpret_cast<const unsigned char*>(b.data()), b.size()}, index);
  }
  void set_threadgroup_memory(uint32_t index, uint32_t bytes) override { soft->set_threadgroup_memory(bytes, index); }
  void dispatch(Size groups, Size threads) override {
    soft->dispatch_threadgroups({groups.x, groups.y, groups.z}, {threads.x, threads.y, threads.z});
  }
  void barrier() override { soft->memory_barrier(); }
};

struct AdaptedCommands final : CommandBuffer {
  std::shared_ptr<soft::CommandBuffer> soft;
  AdaptedEncoder encoder_;
  Encoder& encoder() override { return encoder_; }
  void commit() override {
    encoder_.soft->end();
    soft->commit();
  }
  Result<void> wait() override {
    soft->wait();
    return soft->result();
  }
  double gpu_seconds() const override { return soft->seconds(); }
};

class SoftAdapter final : public Device {
 public:
  using Libraries = std::vector<std::shared_ptr<const soft::Library>>;
  SoftAdapter(const soft::DeviceOptions& options, const std::string& library)
      : soft(soft::Device::create(options).value()), libraries_{soft->open_library(library).value()} {}
  /// A kernel is that of the first library that has it.
  SoftAdapter(std::shared_ptr<soft::Device> device, Libraries libraries)
      : soft(std::move(device)), libraries_(std::move(libraries)) {}
  std::string describe() const override { return "software device"; }
  uint64_t most_buffer_bytes() const override { return uint64_t{1} << 40; }
  uint64_t recommended_memory_bytes() const override { return 0; }
  Result<std::shared_ptr<Buffer>> allocate(uint64_t bytes, std::string) override {
    HC_ASSIGN(auto b, soft->new_buffer(bytes));
    return std::make_shared<AdaptedBuffer>(std::move(b));
  }
  Result<std::shared_ptr<Buffer>> wrap(std::byte* memory, uint64_t bytes, std::function<void()> release,
                                       std::string) override {
    HC_ASSIGN(auto b, soft->wrap_memory(memory, bytes, std::move(release)));
    return std::make_shared<AdaptedBuffer>(std::move(b));
  }
  Result<std::shared_ptr<const Pipeline>> pipeline(std::string_view, std::string_view kernel,
                                                   std::span<const Constant> constants) override {
    soft::FunctionConstants values;
    for (const Constant& c : constants) {
      if (c.type == Constant::Type::kBool)
        values.set<bool>(c.index, c.bits != 0);
      else
        values.set<uint32_t>(c.index, c.bits);
    }
    auto p = std::make_shared<AdaptedPipeline>();
    Result<std::shared_ptr<const soft::Pipeline>> made = unsupported("no kernel library");
    for (const auto& library : libraries_)
      if (made = soft->new_pipeline(library, std::string(kernel), values); made) break;
    HC_ASSIGN(p->soft, std::move(made));
    p->label = kernel;
    return p;
  }
  Result<std::unique_ptr<CommandBuffer>> command_buffer(std::string) override {
    auto c = std::make_unique<AdaptedCommands>();
    c->soft = soft->new_command_buffer();
    c->encoder_.soft = c->soft->new_encoder(soft::DispatchType::kConcurrent);
    return c;
  }

  const std::shared_ptr<soft::Device> soft;

 private:
  const Libraries libraries_;
};

}  // namespace honeycrisp::backend::metal::testing
