// Speed of a model file on a backend without the engine: load, prefill of several lengths and at a depth, and decode at
// three depths for 1, 4 and 8 rows and, at the first, for more.
// Usage: cuda_speed BACKEND [--top N] [--flight N] [--prefill | --decode ROWS@DEPTH,...] FILE...
// --prefill: no decode; --decode: only that; --top: of each row only the N largest logits come back; --flight: for
// decode of one row also greedy runs with 1, 2, ..., N steps in flight, of which a figure is the seconds per token.
#include "backend/registry.h"
#include "gguf/file.h"
#include "model/model.h"
#include "program/check.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>

namespace {

using namespace honeycrisp;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kMostRows = 512, kRuns = 64, kDepth = 16384;
constexpr uint32_t kManyRows[] = {16, 32, 64};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Median seconds of steps of `n` sequences at one position each, from `depth` on.
double decode_seconds(backend::Executor& executor, const program::Program& program, uint32_t n, uint32_t depth,
                      uint8_t n_top) {
  const uint32_t n_pages = (depth + kRuns) / program::kPagePositions + 1;
  std::vector<std::vector<backend::PageId>> pages(n, std::vector<backend::PageId>(n_pages));
  std::vector<backend::SequencePages> sequences(n);
  for (uint32_t s = 0; s < n; ++s) {
    std::iota(pages[s].begin(), pages[s].end(), s * n_pages);
    sequences[s].tables.assign(program.pools.size(), pages[s]);
  }
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
    if (!executor.reserve_pages(pool, n * n_pages)) return 0;
  std::vector<float> logits(n_top == 0 ? size_t{n} * program.vocabulary : 0);
  std::vector<TopLogits> top(n_top == 0 ? 0 : n);
  std::vector<double> times;
  for (uint32_t run = 0; run < kRuns; ++run) {
    std::vector<backend::Row> rows;
    for (uint32_t s = 0; s < n; ++s)
      rows.push_back({int32_t(run + s), depth + run, s, true, backend::Role::kGenerated, n_top});
    const auto start = Clock::now();
    if (auto done = executor.step({rows, sequences}, logits, top); !done) {
      std::printf("  %s\n", done.error().message.c_str());
      return 0;
    }
    times.push_back(seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

// Median seconds per token of runs of kRuns greedy tokens with `in_flight` steps in flight.
double flight_seconds(backend::Executor& executor, const program::Program& program, uint32_t depth,
                      uint32_t in_flight) {
  std::vector<backend::PageId> pages((depth + kRuns) / program::kPagePositions + 1);
  std::iota(pages.begin(), pages.end(), 0);
  backend::SequencePages sequence;
  sequence.tables.assign(program.pools.size(), pages);
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
    if (!executor.reserve_pages(pool, uint32_t(pages.size()))) return 0;
  const auto issue = [&](uint32_t i, int32_t token, bool follows) {
    const backend::Row row{token, depth + i, 0, true, backend::Role::kGenerated, 1};
    return executor.issue({{&row, 1}, {&sequence, 1}}, follows);
  };
  std::vector<double> times;
  for (int run = 0; run < 9; ++run) {
    int32_t token = run;
    const auto start = Clock::now();
    for (uint32_t issued = 0, collected = 0; collected < kRuns;) {
      if (issued < kRuns && issued - collected < in_flight) {
        if (auto done = issue(issued, token, issued != collected); !done)
          return std::printf("  %s\n", done.error().message.c_str()), 0;
        ++issued;
        continue;
      }
      auto top = executor.collect();
      if (!top) return std::printf("  %s\n", top.error().message.c_str()), 0;
      token = top->tokens[0];
      ++collected;
    }
    times.push_back(seconds_since(start) / kRuns);
  }
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return times[4];
}

// Best seconds of a prompt's rows [depth, depth + n).
double prefill_seconds(backend::Executor& executor, const program::Program& program, uint32_t n, uint32_t depth) {
  std::vector<backend::PageId> pages((depth + n + program::kPagePositions - 1) / program::kPagePositions);
  std::iota(pages.begin(), pages.end(), 0);
  backend::SequencePages sequence;
  sequence.tables.assign(program.pools.size(), pages);
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
    if (!executor.reserve_pages(pool, uint32_t(pages.size()))) return 0;
  std::vector<backend::Row> rows;
  for (uint32_t i = 0; i < n; ++i) rows.push_back({int32_t(i), depth + i, 0, i + 1 == n, backend::Role::kPrompt});
  std::vector<float> logits(program.vocabulary);
  double best = 1e9;
  for (int run = 0; run < 5; ++run) {
    const auto start = Clock::now();
    if (auto done = executor.step({rows, {&sequence, 1}}, logits); !done) {
      std::printf("  %s\n", done.error().message.c_str());
      return 0;
    }
    best = std::min(best, seconds_since(start));
  }
  return best;
}

struct Decode {
  uint32_t rows, depth;
};

std::vector<Decode> every_decode() {
  std::vector<Decode> all;
  for (uint32_t depth : {128u, 4096u, kDepth})
    for (uint32_t n : {1u, 4u, 8u}) all.push_back({n, depth});
  for (uint32_t n : kManyRows) all.push_back({n, 128});
  return all;
}

// "ROWS@DEPTH,ROWS@DEPTH,..."; empty where it is something else.
std::vector<Decode> parse_decodes(const char* text) {
  std::vector<Decode> all;
  for (int read = 0;; text += read + 1) {
    Decode d{};
    if (std::sscanf(text, "%u@%u%n", &d.rows, &d.depth, &read) != 2 || d.rows == 0 || d.rows > kMostRows ||
        d.depth > kDepth)
      return {};
    all.push_back(d);
    if (text[read] == 0) return all;
    if (text[read] != ',') return {};
  }
}

int measure(const backend::Backend& backend, const char* path, bool prefills, const std::vector<Decode>& decodes,
            uint8_t n_top, uint32_t in_flight) {
  auto file = gguf::File::open(path);
  if (!file) return std::printf("%s: %s\n", path, file.error().message.c_str()), 1;
  auto model = model::load(*file);
  if (!model) return std::printf("%s: %s\n", path, model.error().message.c_str()), 1;
  backend::CompileOptions options;
  options.max_positions = kDepth + kMostRows;
  const auto start = Clock::now();
  auto executor = backend.compile(model->program, options);
  if (!executor) return std::printf("%s: %s\n", path, executor.error().message.c_str()), 1;
  if (in_flight > (*executor)->most_in_flight())
    return std::printf("%s: this backend has at most %u steps in flight\n", path, (*executor)->most_in_flight()), 1;
  const double gigabytes = double(program::weight_bytes(model->program)) * 1e-9;
  std::printf("%s: loaded in %.2f s, %.3f GB of weights per token, %.2f GB held\n", path, seconds_since(start),
              gigabytes, double((*executor)->memory_bytes()) * 1e-9);
  const auto prefill = [&](uint32_t n, uint32_t depth) {
    const double s = prefill_seconds(**executor, model->program, n, depth);
    std::printf("  prefill %u at %u: %.2f ms, %.0f tokens/s\n", n, depth, s * 1e3, n / s);
  };
  if (prefills) {
    for (uint32_t n : {16u, 64u, 128u, kMostRows}) prefill(n, 0);
    prefill(kMostRows, kDepth);
  }
  for (const auto& [n, depth] : decodes) {
    const double s = decode_seconds(**executor, model->program, n, depth, n_top);
    std::printf("  decode at %u, %u rows: %.0f us, %.1f tokens/s, %.0f GB/s of weights\n", depth, n, s * 1e6, n / s,
                gigabytes / s);
    for (uint32_t most = 1; n == 1 && most <= in_flight; ++most) {
      const double flown = flight_seconds(**executor, model->program, depth, most);
      std::printf("  greedy at %u, %u in flight: %.1f us, %.1f tokens/s\n", depth, most, flown * 1e6, 1 / flown);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool prefills = true;
  std::vector<Decode> decodes = every_decode();
  int first = 2;
  uint8_t n_top = 0;
  uint32_t in_flight = 0;
  if (argc > first + 1 && std::string_view(argv[first]) == "--top") {
    n_top = uint8_t(std::clamp(std::atoi(argv[first + 1]), 0, int(kMostTopLogits)));
    first += 2;
  }
  if (argc > first + 1 && std::string_view(argv[first]) == "--flight") {
    in_flight = uint32_t(std::max(0, std::atoi(argv[first + 1])));
    first += 2;
  }
  if (argc > first && std::string_view(argv[first]) == "--prefill") {
    decodes.clear();
    ++first;
  } else if (argc > first + 1 && std::string_view(argv[first]) == "--decode") {
    decodes = parse_decodes(argv[first + 1]);
    prefills = false;
    first += 2;
  }
  if (argc <= first || (!prefills && decodes.empty()))
    return std::puts("usage: cuda_speed BACKEND [--top N] [--flight N] [--prefill | --decode ROWS@DEPTH,...] FILE..."),
           2;
  const auto backend = honeycrisp::backend::find_backend(argv[1]);
  if (!backend) return std::printf("%s\n", backend.error().message.c_str()), 1;
  std::printf("%s\n", (*backend)->describe().c_str());
  int status = 0;
  for (int i = first; i < argc; ++i) status |= measure(**backend, argv[i], prefills, decodes, n_top, in_flight);
  return status;
}
