// What `bench` measures: prefill and decode through the public API, each run beside a measurement of what the device
// can do at most. Gathered here, shown by report.cpp as text or as JSON.
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include <honeycrisp/engine.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace honeycrisp::cli {

struct BenchOptions {
  uint32_t prompt = 512;    // tokens of the prefill test; 0: none
  uint32_t generate = 128;  // tokens of the decode test; 0: none
  uint32_t depth = 0;       // positions that are in the cache before either begins
  uint32_t sequences = 1;   // decoded side by side
  uint32_t repetitions = 5;
  bool ops = false;
  std::function<bool()> should_stop;
  std::function<void(uint64_t done, uint64_t total)> progress;  // in tokens
};

/// A sample of runs, in the order they were made.
struct Samples {
  std::vector<double> values;
  double median() const;
  double least() const;
  double most() const;
};

/// What steps of the program took, in the median over the computed steps that were timed.
struct OpTime {
  std::string op, kernel;  // steps of equal op and kernel together
  uint32_t steps = 0;
  double seconds = 0;                // of all of them, per computed step (a chunk of prompt, or one token)
  uint64_t weight_bytes = 0;         // that they read
  double bytes = 0, operations = 0;  // weights and cache that they have to read; multiply-adds times two
};

struct BenchTest {
  std::string name;           // "pp512", "tg128", "tg128x8", "tg128 in flight", "… @ d4096"
  Samples tokens_per_second;  // of all sequences together
  /// Of a computed step (a chunk of prompt, or a token of every sequence): weights and cache that have to be read,
  /// multiply-adds times two; and the same per second in the median run.
  double bytes_per_step = 0, operations_per_step = 0;
  double bytes_per_second = 0, operations_per_second = 0;
  Samples read_ceiling, operation_ceiling;  // measured beside each run; empty: unknown
  std::optional<double> percent_of_others;  // of all CPUs' time, taken by other processes during the test
  std::vector<OpTime> ops;

  /// Share of the ceilings, in percent; 0: unknown.
  double percent_of_bandwidth() const;
  double percent_of_peak() const;
};

struct BenchReport {
  ModelInfo info;
  double load_seconds = 0;
  std::optional<double> first_prompt_seconds;  // of the prefill test, before anything else was computed
  /// From the beginning of loading to the first token after that prompt.
  std::optional<double> first_token_seconds() const {
    return first_prompt_seconds ? std::optional(load_seconds + *first_prompt_seconds) : std::nullopt;
  }
  std::string arithmetic;   // what the peak is of
  std::string no_ceilings;  // why they were not measured
  std::string no_op_times;  // why they were not measured, if asked for
  std::vector<BenchTest> tests;
};

/// Error: the model's, or kCancelled.
Result<BenchReport> run_bench(const std::shared_ptr<Engine>& engine, const BenchOptions& options);

/// Positions that a session needs.
uint64_t bench_context(const BenchOptions& options);

std::string bench_text(const BenchReport& report);
std::string bench_json(const BenchReport& report);

}  // namespace honeycrisp::cli
