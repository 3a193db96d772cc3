// The cuda backend of a build without CUDA: it exists, and says so.
#include "backend/cuda/cuda_backend.h"

namespace honeycrisp::backend {
namespace {

class AbsentBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  std::string describe() const override { return "cuda: built without CUDA"; }
  Result<void> available() const override { return missing(); }
  Result<Plan> plan(const program::Program&, const CompileOptions&) const override { return missing(); }
  Result<std::unique_ptr<Executor>> compile(const program::Program&, const CompileOptions&) const override {
    return missing();
  }

 private:
  static tl::unexpected<Error> missing() { return unsupported("this honeycrisp was built without CUDA"); }
};

}  // namespace

const Backend& cuda_backend() {
  static const AbsentBackend backend;
  return backend;
}

}  // namespace honeycrisp::backend
