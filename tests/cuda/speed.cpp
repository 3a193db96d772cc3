// Speed of a model file on a backend without the engine: load, prefill, and decode at three depths for 1, 4 and 8 rows.
// Usage: cuda_speed BACKEND FILE...
#include "backend/registry.h"
#include "gguf/file.h"
#include "model/model.h"
#include "program/check.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

namespace {

using namespace honeycrisp;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kPrompt = 512, kRuns = 64;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Median seconds of steps of `n` sequences at one position each, from `depth` on.
double decode_seconds(backend::Executor& executor, const program::Program& program, uint32_t n, uint32_t depth) {
  const uint32_t n_pages = (depth + kRuns) / program::kPagePositions + 1;
  std::vector<std::vector<backend::PageId>> pages(n, std::vector<backend::PageId>(n_pages));
  std::vector<backend::SequencePages> sequences(n);
  for (uint32_t s = 0; s < n; ++s) {
    std::iota(pages[s].begin(), pages[s].end(), s * n_pages);
    sequences[s].tables.assign(program.pools.size(), pages[s]);
  }
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
    if (!executor.reserve_pages(pool, n * n_pages)) return 0;
  std::vector<float> logits(size_t{n} * program.vocabulary);
  std::vector<double> times;
  for (uint32_t run = 0; run < kRuns; ++run) {
    std::vector<backend::Row> rows;
    for (uint32_t s = 0; s < n; ++s)
      rows.push_back({int32_t(run + s), depth + run, s, true, backend::Role::kGenerated});
    const auto start = Clock::now();
    if (auto done = executor.step({rows, sequences}, logits); !done) {
      std::printf("  %s\n", done.error().message.c_str());
      return 0;
    }
    times.push_back(seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

double prefill_seconds(backend::Executor& executor, const program::Program& program) {
  std::vector<backend::PageId> pages(kPrompt / program::kPagePositions);
  std::iota(pages.begin(), pages.end(), 0);
  backend::SequencePages sequence;
  sequence.tables.assign(program.pools.size(), pages);
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
    if (!executor.reserve_pages(pool, uint32_t(pages.size()))) return 0;
  std::vector<backend::Row> rows;
  for (uint32_t i = 0; i < kPrompt; ++i) rows.push_back({int32_t(i), i, 0, i + 1 == kPrompt, backend::Role::kPrompt});
  std::vector<float> logits(program.vocabulary);
  double best = 1e9;
  for (int run = 0; run < 4; ++run) {
    const auto start = Clock::now();
    if (auto done = executor.step({rows, {&sequence, 1}}, logits); !done) {
      std::printf("  %s\n", done.error().message.c_str());
      return 0;
    }
    best = std::min(best, seconds_since(start));
  }
  return best;
}

int measure(const backend::Backend& backend, const char* path) {
  auto file = gguf::File::open(path);
  if (!file) return std::printf("%s: %s\n", path, file.error().message.c_str()), 1;
  auto model = model::load(*file);
  if (!model) return std::printf("%s: %s\n", path, model.error().message.c_str()), 1;
  backend::CompileOptions options;
  options.max_positions = 16384 + kRuns;
  const auto start = Clock::now();
  auto executor = backend.compile(model->program, options);
  if (!executor) return std::printf("%s: %s\n", path, executor.error().message.c_str()), 1;
  const double gigabytes = double(program::weight_bytes(model->program)) * 1e-9;
  std::printf("%s: loaded in %.2f s, %.3f GB of weights per token, %.2f GB held\n", path, seconds_since(start),
              gigabytes, double((*executor)->memory_bytes()) * 1e-9);
  std::printf("  prefill %u: %.0f tokens/s\n", kPrompt, kPrompt / prefill_seconds(**executor, model->program));
  for (uint32_t depth : {128u, 4096u, 16384u})
    for (uint32_t n : {1u, 4u, 8u}) {
      const double s = decode_seconds(**executor, model->program, n, depth);
      std::printf("  decode at %u, %u rows: %.0f us, %.1f tokens/s, %.0f GB/s of weights\n", depth, n, s * 1e6, n / s,
                  gigabytes / s);
    }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::puts("usage: cuda_speed BACKEND FILE..."), 2;
  const auto backend = honeycrisp::backend::find_backend(argv[1]);
  if (!backend) return std::printf("%s\n", backend.error().message.c_str()), 1;
  std::printf("%s\n", (*backend)->describe().c_str());
  int status = 0;
  for (int i = 2; i < argc; ++i) status |= measure(**backend, argv[i]);
  return status;
}
