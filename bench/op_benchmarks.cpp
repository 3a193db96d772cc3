// Micro-benchmarks of the cpu backend: every variant in the case table of the op tests, and a matrix of every packed
// format, on every instruction set of this machine, for one row and for several. One thread. Only the case's own ops
// are timed, and held against what the same thread reads and multiplies at most.
//
//   op_benchmarks --benchmark_filter='attend.*avx512'
#include "backend/cpu/executor.h"
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/packing.h"
#include "base/check.h"
#include "base/checked.h"
#include "program/check.h"
#include "quant/formats.h"
#include "support/op_cases.h"

#include <benchmark/benchmark.h>
#include <map>
#include <numeric>

namespace honeycrisp::backend::cpu {
namespace {

using test_support::OpCase;
using test_support::TinyProgram;

constexpr uint32_t kWider = 16;  // than in the tests: rows of 1,536 or 4,096 inputs
constexpr uint32_t kRows[] = {1, 8, 64};
constexpr CacheType kCache = CacheType::kF16;

template <class T>
T expect(Result<T> result) {
  HC_CHECK(result.has_value(), "{}", result.error().message);
  return std::move(*result);
}

// The one sequence of a program, in memory of an executor.
class Sequence {
 public:
  Sequence(Executor& executor, const program::Program& program, uint32_t positions)
      : executor_(executor), logits_(program.vocabulary) {
    pages_.resize(ceil_div(positions, program::kPagePositions));
    std::iota(pages_.begin(), pages_.end(), 0);
    for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
      HC_CHECK(executor.reserve_pages(pool, uint32_t(pages_.size())).has_value());
    HC_CHECK(executor.reserve_states(1).has_value());
    sequence_.tables.assign(program.pools.size(), pages_);
    sequence_.state = 0;
  }
  void step(uint32_t position, uint32_t n) {
    rows_.clear();
    for (uint32_t i = 0; i < n; ++i)
      rows_.push_back({.token = int32_t((position + i) % TinyProgram::kVocabulary), .position = position + i});
    rows_.back().wants_logits = true;
    HC_CHECK(executor_.step({rows_, {&sequence_, 1}}, logits_).has_value());
  }

 private:
  Executor& executor_;
  std::vector<float> logits_;
  std::vector<PageId> pages_;
  SequencePages sequence_;
  std::vector<Row> rows_;
};

const Ceilings& ceilings_of(const Isa& isa, Executor& executor) {
  static std::map<std::string, Ceilings> known;
  const auto found = known.find(isa.name);
  return found != known.end() ? found->second
                              : known.emplace(isa.name, expect(executor.measure_ceilings(0))).first->second;
}

bool is_of_the_case(const program::Step& step) {
  return !std::holds_alternative<program::Embed>(step.op) && !std::holds_alternative<program::Logits>(step.op);
}

void run(benchmark::State& state, const OpCase& op_case, const Isa& isa, uint32_t rows) {
  TinyProgram tiny(op_case.width * kWider);
  op_case.add(tiny);
  tiny.finish();
  const program::Program& program = tiny.program;
  const uint32_t depth = op_case.positions;
  const CompileOptions options{.cache_type = kCache, .max_rows = 64, .max_positions = depth + rows};
  const auto executor = expect(make_executor(program, options, isa, /*threads=*/1, "benchmark"));
  Sequence sequence(*executor, program, depth + rows);
  for (uint32_t at = 0; at < depth; at += 64) sequence.step(at, std::min(64u, depth - at));

  std::vector<double> seconds(program.steps.size());
  HC_CHECK(executor->profile(seconds.data()).has_value());
  double total = 0;
  for (auto _ : state) {
    std::fill(seconds.begin(), seconds.end(), 0.0);
    sequence.step(depth, rows);
    double once = 0;
    for (size_t i = 0; i < seconds.size(); ++i)
      if (is_of_the_case(program.steps[i])) once += seconds[i];
    state.SetIterationTime(once);
    total += once;
  }
  HC_CHECK(executor->profile(nullptr).has_value());

  double bytes = 0, operations = 0;
  for (const program::Step& step : program.steps) {
    if (!is_of_the_case(step)) continue;
    bytes += double(program::weight_bytes(program, step.op)) +
             double(cache_bytes(kCache, program::cache_values_read(program, step.op, depth + rows - 1)));
    operations += 2.0 * rows *
                  double(program::weight_multiply_adds(program, step.op) +
                         program::attention_multiply_adds(program, step.op, depth));
  }
  const double per_second = double(state.iterations()) / total;
  const Ceilings& most = ceilings_of(isa, *executor);
  state.counters["GB/s"] = bytes * per_second / 1e9;
  state.counters["%memory"] = 100 * bytes * per_second / most.read_bytes_per_second;
  state.counters["GOP/s"] = operations * per_second / 1e9;
  state.counters["%peak"] = 100 * operations * per_second / most.operations_per_second;
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases = test_support::op_cases();
  for (const auto& [format, kind, name, elements, bytes] : quant::kFormats) {
    if (!is_packed(format)) continue;
    cases.push_back({.name = fmt::format("matrix_{}", name),
                     .add =
                         [format = format](TinyProgram& t) {
                           t.residual(t.matrix(format, t.width, t.width), t.all(0), {.branch_scale = 0.1f});
                         },
                     .width = 256});
  }
  return cases;
}

}  // namespace
}  // namespace honeycrisp::backend::cpu

int main(int argc, char** argv) {
  using namespace honeycrisp::backend::cpu;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  static const auto cases = all_cases();
  for (const auto& op_case : cases)
    for (const Isa* isa : available_isas())
      for (const uint32_t rows : kRows)
        benchmark::RegisterBenchmark(
            fmt::format("{}/{}/rows:{}", op_case.name, isa->name, rows).c_str(),
            [&op_case, isa, rows](benchmark::State& state) { run(state, op_case, *isa, rows); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
