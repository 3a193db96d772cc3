#include "backend/cuda/cuda_backend.h"

#include "backend/cuda/executor.h"

namespace honeycrisp::backend {
namespace cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }

  std::string describe() const override {
    const auto& found = device();
    return found ? description(*found) : "cuda: " + found.error().message;
  }

  Result<void> available() const override {
    HC_TRY(device());
    return {};
  }

  Result<Plan> plan(const program::Program& program, const CompileOptions& options) const override {
    HC_ASSIGN(const DeviceInfo found, device());
    HC_TRY(check_program(program, options));
    return make_plan(program, options, found);
  }

  Result<std::unique_ptr<Executor>> compile(const program::Program& program,
                                            const CompileOptions& options) const override {
    HC_TRY(device());
    return make_executor(program, options, *device());
  }
};

}  // namespace
}  // namespace cuda

const Backend& cuda_backend() {
  static const cuda::CudaBackend backend;
  return backend;
}

}  // namespace honeycrisp::backend
