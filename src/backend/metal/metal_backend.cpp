#include "backend/metal/metal_backend.h"

#include "backend/metal/apple/device.h"
#include "backend/metal/executor.h"
#include "backend/metal/soft_device.h"

namespace honeycrisp::backend {
namespace metal {
namespace {

class MetalBackend final : public Backend {
 public:
  std::string_view name() const override { return "metal"; }
  std::string describe() const override {
    const auto device = system_device();
    return device ? "metal: " + (*device)->describe() : "metal: " + device.error().message;
  }
  Result<void> available() const override {
    HC_TRY(system_device());
    return {};
  }
  Result<Plan> plan(const program::Program& program, const CompileOptions& options) const override {
    HC_ASSIGN(const auto device, system_device());
    return make_plan(program, options, "metal: " + device->describe(), device->recommended_memory_bytes());
  }
  Result<std::unique_ptr<Executor>> compile(const program::Program& program,
                                            const CompileOptions& options) const override {
    HC_ASSIGN(auto device, system_device());
    if (!options.kernel_folder.empty()) device->keep_pipelines_in(options.kernel_folder);
    HC_ASSIGN(const DebugSwitches switches, debug_switches());
    return make_executor(std::move(device), program, options, switches);
  }
};

/// From the environment, for people who debug kernels: HONEYCRISP_METAL_CHECK=1, HONEYCRISP_METAL_SEED=n.
Result<SoftDeviceOptions> soft_options(const CompileOptions& options) {
  SoftDeviceOptions soft{.threads = options.threads};
  HC_ASSIGN(soft.check, environment_switch("HONEYCRISP_METAL_CHECK"));
  HC_ASSIGN(soft.seed, environment_number("HONEYCRISP_METAL_SEED"));
  return soft;
}

class MetalSoftBackend final : public Backend {
 public:
  std::string_view name() const override { return "metal-soft"; }
  std::string describe() const override {
    return "metal-soft: the Metal kernels on a software device, to check them: slow";
  }
  bool automatic() const override { return false; }
  Result<void> available() const override { return soft_device_available(); }
  Result<Plan> plan(const program::Program& program, const CompileOptions& options) const override {
    HC_TRY(available());
    return make_plan(program, options, describe(), 0);
  }
  Result<std::unique_ptr<Executor>> compile(const program::Program& program,
                                            const CompileOptions& options) const override {
    HC_ASSIGN(const SoftDeviceOptions soft, soft_options(options));
    HC_ASSIGN(const DebugSwitches switches, debug_switches());
    HC_ASSIGN(auto device, soft_device(soft));
    return make_executor(std::move(device), program, options, switches);
  }
};

}  // namespace
}  // namespace metal

const Backend& metal_backend() {
  static const metal::MetalBackend backend;
  return backend;
}

const Backend& metal_soft_backend() {
  static const metal::MetalSoftBackend backend;
  return backend;
}

}  // namespace honeycrisp::backend
