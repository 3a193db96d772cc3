#include "backend/metal/soft_device.h"

#include "backend/metal/soft/device.h"
#include "base/log.h"

#include <atomic>
#include <filesystem>

namespace honeycrisp::backend::metal {
namespace {

constexpr char kLibrary[] = "backend_kernels";  // of all files, by cmake/metal_kernels.cmake

class SoftBuffer final : public Buffer {
 public:
  explicit SoftBuffer(std::shared_ptr<soft::Buffer> buffer) : buffer_(std::move(buffer)) {}
  uint64_t bytes() const override { return buffer_->length(); }
  std::byte* contents() override { return static_cast<std::byte*>(buffer_->contents()); }
  const std::shared_ptr<soft::Buffer>& get() const { return buffer_; }

 private:
  std::shared_ptr<soft::Buffer> buffer_;
};

class SoftPipeline final : public Pipeline {
 public:
  SoftPipeline(std::shared_ptr<const soft::Pipeline> pipeline, std::string name)
      : pipeline_(std::move(pipeline)), name_(std::move(name)) {}
  uint32_t most_threads() const override { return soft::kMaxThreads; }
  std::string_view name() const override { return name_; }
  const std::shared_ptr<const soft::Pipeline>& get() const { return pipeline_; }

 private:
  std::shared_ptr<const soft::Pipeline> pipeline_;
  std::string name_;
};

class SoftEncoder final : public Encoder {
 public:
  SoftEncoder(std::shared_ptr<soft::Encoder> encoder, std::atomic<uint64_t>& dispatches)
      : encoder_(std::move(encoder)), dispatches_(dispatches) {}
  void set_pipeline(const Pipeline& pipeline) override {
    encoder_->set_pipeline(static_cast<const SoftPipeline&>(pipeline).get());
  }
  void set_buffer(uint32_t index, const View& view) override {
    encoder_->set_buffer(static_cast<SoftBuffer*>(view.buffer)->get(), view.offset, index, view.bytes);
  }
  void set_bytes(uint32_t index, std::span<const std::byte> bytes) override {
    encoder_->set_bytes({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()}, index);
  }
  void set_threadgroup_memory(uint32_t index, uint32_t bytes) override {
    encoder_->set_threadgroup_memory(bytes, index);
  }
  void dispatch(Size threadgroups, Size threads) override {
    ++dispatches_;
    encoder_->dispatch_threadgroups({threadgroups.x, threadgroups.y, threadgroups.z},
                                    {threads.x, threads.y, threads.z});
  }
  void barrier() override { encoder_->memory_barrier(); }
  void end() { encoder_->end(); }

 private:
  std::shared_ptr<soft::Encoder> encoder_;
  std::atomic<uint64_t>& dispatches_;  // of the device
};

class SoftCommandBuffer final : public CommandBuffer {
 public:
  SoftCommandBuffer(soft::Device& device, std::atomic<uint64_t>& dispatches, std::string label, bool tells_reports)
      : device_(device),
        label_(std::move(label)),
        tells_reports_(tells_reports),
        commands_(device.new_command_buffer()),
        encoder_(commands_->new_encoder(soft::DispatchType::kConcurrent), dispatches) {}

  Encoder& encoder() override { return encoder_; }
  void commit() override {
    encoder_.end();
    commands_->commit();
  }
  Result<void> wait() override {
    commands_->wait();
    // Checking, what was found is told once, by the command buffer that did it: the device runs them one by one.
    const auto reports = tells_reports_ ? device_.reports() : std::vector<soft::Report>();
    if (!reports.empty()) {
      std::string text;
      for (const soft::Report& report : reports) text += "\n  " + soft::to_string(report);
      device_.clear_reports();
      return fail(ErrorCode::kInternal, "{}: the checking device found {} faults:{}", label_, reports.size(), text);
    }
    if (auto result = commands_->result(); !result)
      return fail(result.error().code, "{}: {}", label_, result.error().message);
    return {};
  }
  double gpu_seconds() const override { return commands_->seconds(); }

 private:
  soft::Device& device_;
  std::string label_;
  bool tells_reports_;
  std::shared_ptr<soft::CommandBuffer> commands_;
  SoftEncoder encoder_;
};

class SoftDevice final : public Device {
 public:
  /// Without libraries: that of the backend, when a kernel is first asked for.
  SoftDevice(std::shared_ptr<soft::Device> device, SoftLibraries libraries, bool tells_reports)
      : device_(std::move(device)), libraries_(std::move(libraries)), tells_reports_(tells_reports) {}
  ~SoftDevice() override {
    if (!device_->options().check || !tells_reports_ || dispatches_ == 0) return;
    const uint64_t faults = device_->faults_met();
    log_warning("the checking Metal device ran {} dispatches: {}", dispatches_.load(),
                faults == 0 ? "no report" : fmt::format("{} faults", faults));
  }

  std::string describe() const override {
    return device_->options().check ? "software Metal device, checking" : "software Metal device";
  }
  uint64_t most_buffer_bytes() const override { return uint64_t{1} << 40; }
  uint64_t recommended_memory_bytes() const override { return 0; }
  uint64_t most_work() const override { return uint64_t{1} << 29; }

  Result<std::shared_ptr<Buffer>> allocate(uint64_t bytes, std::string label) override {
    HC_ASSIGN(auto buffer, device_->new_buffer(bytes));
    buffer->set_label(std::move(label));
    return std::make_shared<SoftBuffer>(std::move(buffer));
  }
  Result<std::shared_ptr<Buffer>> wrap(std::byte* memory, uint64_t bytes, std::function<void()> release,
                                       std::string label) override {
    HC_ASSIGN(auto buffer, device_->wrap_memory(memory, bytes, std::move(release)));
    buffer->set_label(std::move(label));
    return std::make_shared<SoftBuffer>(std::move(buffer));
  }
  Result<std::shared_ptr<const Pipeline>> pipeline(std::string_view, std::string_view kernel,
                                                   std::span<const Constant> constants) override {
    if (libraries_.empty()) {
      HC_ASSIGN(libraries_.emplace_back(), device_->open_library(kLibrary));
    }
    soft::FunctionConstants values;
    for (const Constant& c : constants) {
      if (c.type == Constant::Type::kBool)
        values.set(c.index, c.bits != 0);
      else
        values.set(c.index, c.bits);
    }
    auto made = device_->new_pipeline(libraries_[0], std::string(kernel), values);
    for (size_t i = 1; i < libraries_.size() && !made; ++i)
      made = device_->new_pipeline(libraries_[i], std::string(kernel), values);
    if (!made) return tl::unexpected<Error>(made.error());
    return std::make_shared<SoftPipeline>(std::move(*made), std::string(kernel));
  }
  Result<std::unique_ptr<CommandBuffer>> command_buffer(std::string label) override {
    return std::make_unique<SoftCommandBuffer>(*device_, dispatches_, std::move(label), tells_reports_);
  }

 private:
  std::shared_ptr<soft::Device> device_;
  SoftLibraries libraries_;
  bool tells_reports_;
  std::atomic<uint64_t> dispatches_{0};
};

}  // namespace

Result<void> soft_device_available(bool check) {
  const std::string path = soft::Library::default_path(kLibrary, check);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return {};
  if (check)
    return unsupported(
        "the checking software Metal device looks for its kernels beside the binary, and {} is not there; "
        "cmake --build <build folder> --target hc_metal_{}_checked makes it",
        path, kLibrary);
  return unsupported("the software Metal device looks for its kernels beside the binary, and {} is not there", path);
}

Result<std::shared_ptr<Device>> soft_device(const SoftDeviceOptions& options) {
  HC_TRY(soft_device_available(options.check));
  HC_ASSIGN(auto device,
            soft::Device::create({.check = options.check, .threads = options.threads, .seed = options.seed}));
  return std::make_shared<SoftDevice>(std::move(device), SoftLibraries(), true);
}

std::shared_ptr<Device> soft_device_around(std::shared_ptr<soft::Device> device, SoftLibraries libraries) {
  return std::make_shared<SoftDevice>(std::move(device), std::move(libraries), false);
}

}  // namespace honeycrisp::backend::metal
