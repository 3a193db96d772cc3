#include "backend/cpu/cpu_backend.h"

#include "backend/cpu/executor.h"
#include "backend/cpu/packing.h"
#include "base/cpu_count.h"
#include "base/log.h"
#include "base/text_escape.h"

#include <algorithm>
#include <fstream>
#include <thread>

namespace honeycrisp::backend {
namespace cpu {
namespace {

constexpr uint32_t kMostThreads = 1024;

// The processor's name as Linux knows it, else "unknown processor".
std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return escape_for_display(line.substr(colon + 2), 80);
  }
  return "unknown processor";
}

std::string description(const Isa& isa, uint32_t threads, Activations activations = Activations::k14Bit) {
  return fmt::format("cpu: {}, {}, {}{} thread{}", processor_name(), isa.name,
                     activations == Activations::k8Bit ? "8-bit activations, " : "", threads, threads == 1 ? "" : "s");
}

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }

  std::string describe() const override {
    const auto isa = chosen_isa();
    return isa ? description(**isa, usable_cores()) : "cpu: " + isa.error().message;
  }

  Result<void> available() const override {
    HC_TRY(chosen_isa());
    return {};
  }

  Result<Plan> plan(const program::Program& program, const CompileOptions& options) const override {
    HC_ASSIGN(const Setup setup, set_up(options));
    HC_TRY(KvCache::check(program, options.cache_type));
    HC_ASSIGN(auto kernels, make_kernels(program, {.isa = *setup.isa, .activations = options.activations}));
    HC_TRY(PackedWeights::check_memory(program, options.memory_limit));
    return make_plan(program, kernels, options, *setup.isa, setup.threads,
                     description(*setup.isa, setup.threads, options.activations));
  }

  Result<std::unique_ptr<Executor>> compile(const program::Program& program,
                                            const CompileOptions& options) const override {
    HC_ASSIGN(const Setup setup, set_up(options));
    HC_TRY(KvCache::check(program, options.cache_type));
    return make_executor(program, options, *setup.isa, setup.threads,
                         description(*setup.isa, setup.threads, options.activations));
  }

 private:
  struct Setup {
    const Isa* isa;
    uint32_t threads;
  };
  static Result<Setup> set_up(const CompileOptions& options) {
    HC_ASSIGN(const Isa* isa, chosen_isa());
    if (options.threads > kMostThreads)
      return invalid("{} threads are more than the limit of {}", options.threads, kMostThreads);
    const uint32_t cores = usable_cores();
    if (options.threads > 2 * cores || options.threads > std::max(cores, std::thread::hardware_concurrency()))
      log_warning(
          "{} threads are more than this machine runs at once ({} cores may be used): they will wait for each "
          "other and be slow",
          options.threads, cores);
    return Setup{isa, options.threads != 0 ? options.threads : cores};
  }
};

}  // namespace
}  // namespace cpu

const Backend& cpu_backend() {
  static const cpu::CpuBackend backend;
  return backend;
}

}  // namespace honeycrisp::backend
