#include "cli/bench/bench.h"

#include "base/checked.h"
#include "engine/internals.h"
#include "program/check.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <random>

namespace honeycrisp::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Bench {
 public:
  Bench(const std::shared_ptr<Engine>& engine, const BenchOptions& options)
      : engine_(engine), internals_(engine->internals()), options_(options) {
    report_.info = engine->info();
    total_ = uint64_t{options.repetitions + 1} * (options.prompt + uint64_t{options.generate} * options.sequences);
  }

  Result<BenchReport> run() {
    HC_TRY(try_ceilings());
    if (options_.prompt != 0) HC_TRY(prefill());
    if (options_.generate != 0) HC_TRY(decode());
    return std::move(report_);
  }

 private:
  const program::Program& program() const { return internals_.model.program; }

  // Whether the backend can measure them; the first measurement also makes its buffer.
  Result<void> try_ceilings() {
    const auto ceilings = internals_.executor.measure_ceilings(buffer_bytes());
    if (ceilings) {
      report_.arithmetic = ceilings->arithmetic;
    } else {
      if (ceilings.error().code != ErrorCode::kUnsupported) return tl::unexpected<Error>(ceilings.error());
      report_.no_ceilings = ceilings.error().message;
    }
    return {};
  }
  // As large as the weights that a token reads, but for a machine that could not hold both.
  uint64_t buffer_bytes() const {
    constexpr uint64_t kMost = uint64_t{2} << 30;
    return std::min(report_.info.weight_bytes_per_token, kMost);
  }
  Result<void> measure_ceilings(BenchTest& test) {
    if (!report_.no_ceilings.empty()) return {};
    HC_ASSIGN(const backend::Ceilings ceilings, internals_.executor.measure_ceilings(buffer_bytes()));
    if (ceilings.read_bytes_per_second > 0) test.read_ceiling.values.push_back(ceilings.read_bytes_per_second);
    if (ceilings.operations_per_second > 0) test.operation_ceiling.values.push_back(ceilings.operations_per_second);
    return {};
  }

  // Any tokens will do, but not one and the same: experts and embeddings would be read from a cache.
  std::vector<Token> make_tokens(uint32_t n) {
    std::uniform_int_distribution<Token> any(0, Token(report_.info.vocabulary) - 1);
    std::vector<Token> tokens(n);
    for (Token& token : tokens) token = any(random_);
    return tokens;
  }

  Result<void> stop_if_asked() const {
    return options_.should_stop && options_.should_stop() ? Fail(ErrorCode::kCancelled, "") : Result<void>();
  }
  void advance(uint64_t tokens) {
    done_ += tokens;
    if (options_.progress) options_.progress(done_, total_);
  }
  std::string name(std::string base) const {
    return options_.depth == 0 ? base : base + fmt::format(" @ d{}", options_.depth);
  }

  // Sessions that have computed `depth` positions.
  Result<std::vector<Session>> make_sessions(uint32_t n) {
    std::vector<Session> sessions;
    for (uint32_t i = 0; i < n; ++i) {
      HC_ASSIGN(Session session, i == 0 ? engine_->new_session() : sessions[0].fork());
      if (i == 0 && options_.depth != 0) HC_TRY(session.append(make_tokens(options_.depth), options_.should_stop));
      sessions.push_back(std::move(session));
    }
    return sessions;
  }

  Result<void> prefill() {
    BenchTest test{.name = name(fmt::format("pp{}", options_.prompt))};
    for (uint32_t run = 0; run <= options_.repetitions; ++run) {  // the first one warms up
      HC_TRY(stop_if_asked());
      HC_ASSIGN(std::vector<Session> sessions, make_sessions(1));
      const std::vector<Token> tokens = make_tokens(options_.prompt);
      if (run != 0) HC_TRY(measure_ceilings(test));
      const auto start = Clock::now();
      HC_TRY(sessions[0].append(tokens));  // whole chunks: one that may be stopped is cut
      if (run != 0) test.tokens_per_second.values.push_back(options_.prompt / seconds_since(start));
      advance(options_.prompt);
    }
    count_prefill(test);
    if (options_.ops) {
      HC_ASSIGN(std::vector<Session> sessions, make_sessions(1));
      const std::vector<Token> tokens = make_tokens(options_.prompt);
      HC_TRY(profile(test, chunks(), [&] { return sessions[0].append(tokens); }));
    }
    report_.tests.push_back(std::move(test));
    return {};
  }

  Result<void> decode() {
    const std::string many = options_.sequences == 1 ? "" : fmt::format("x{}", options_.sequences);
    BenchTest test{.name = name(fmt::format("tg{}{}", options_.generate, many))};
    for (uint32_t run = 0; run <= options_.repetitions; ++run) {
      HC_TRY(stop_if_asked());
      HC_ASSIGN(std::vector<Session> sessions, make_sessions(options_.sequences));
      if (run != 0) HC_TRY(measure_ceilings(test));
      const auto start = Clock::now();
      HC_TRY(generate(sessions));
      const double tokens = double(options_.generate) * options_.sequences;
      if (run != 0) test.tokens_per_second.values.push_back(tokens / seconds_since(start));
      advance(uint64_t{options_.generate} * options_.sequences);
    }
    count_decode(test);
    if (options_.ops) {
      HC_ASSIGN(std::vector<Session> sessions, make_sessions(options_.sequences));
      HC_TRY(profile(test, options_.generate, [&] { return generate(sessions); }));
    }
    report_.tests.push_back(std::move(test));
    return {};
  }

  Result<void> generate(std::vector<Session>& sessions) {
    const std::vector<Token> tokens = make_tokens(options_.generate * uint32_t(sessions.size()));
    std::vector<Feed> feeds(sessions.size());
    for (uint32_t i = 0; i < options_.generate; ++i) {
      HC_TRY(stop_if_asked());
      for (size_t s = 0; s < sessions.size(); ++s)
        feeds[s] = {&sessions[s], std::span(tokens).subspan(i * sessions.size() + s, 1), /*generated=*/true};
      HC_TRY(engine_->step(feeds));
    }
    return {};
  }

  uint32_t chunks() const { return ceil_div(options_.prompt, internals_.chunk); }
  uint64_t cache_bytes(uint32_t position) const {
    return backend::cache_bytes(internals_.cache_type, program::cache_values_read(program(), position));
  }

  // What one prefill has to move and to multiply: weights once per chunk, the cache once per chunk, logits of one row.
  void count_prefill(BenchTest& test) const {
    uint64_t attention = 0, cache = 0;
    for (uint32_t i = 0; i < options_.prompt; ++i)
      attention += program::attention_multiply_adds(program(), options_.depth + i);
    for (uint32_t i = 0; i < options_.prompt; i += internals_.chunk)
      cache += cache_bytes(options_.depth + std::min(options_.prompt, i + internals_.chunk) - 1);
    const uint64_t with = program::weight_multiply_adds(program(), true),
                   without = program::weight_multiply_adds(program(), false);
    const double seconds = options_.prompt / test.tokens_per_second.median();
    test.bytes_per_second = (double(report_.info.weight_bytes_per_token) * chunks() + double(cache)) / seconds;
    test.operations_per_second =
        2 * (double(without) * (options_.prompt - 1) + double(with) + double(attention)) / seconds;
  }
  // A step reads the weights once (of a mixture at least one row's experts) and every sequence's cache.
  void count_decode(BenchTest& test) const {
    const uint32_t middle = options_.depth + options_.generate / 2;
    const double steps_per_second = test.tokens_per_second.median() / options_.sequences;
    test.bytes_per_second = steps_per_second * (double(report_.info.weight_bytes_per_token) +
                                                double(cache_bytes(middle)) * options_.sequences);
    test.operations_per_second =
        2 * test.tokens_per_second.median() *
        double(program::weight_multiply_adds(program(), true) + program::attention_multiply_adds(program(), middle));
  }

  template <class Body>
  Result<void> profile(BenchTest& test, uint32_t steps, Body body) {
    std::vector<double> seconds(program().steps.size());
    if (auto begun = internals_.executor.profile(seconds.data()); !begun) {
      if (begun.error().code != ErrorCode::kUnsupported) return begun;
      report_.no_op_times = begun.error().message;
      return {};
    }
    const Result<void> done = body();
    HC_TRY(internals_.executor.profile(nullptr));
    HC_TRY(done);
    std::map<std::pair<std::string, std::string>, OpTime> groups;
    for (size_t i = 0; i < seconds.size(); ++i) {
      const std::string op = describe_step(program().steps[i]);
      OpTime& group = groups[{op, internals_.plan.steps[i].kernel}];
      group.op = op;
      group.kernel = internals_.plan.steps[i].kernel;
      ++group.steps;
      group.seconds += seconds[i] / steps;
      group.weight_bytes += program::weight_bytes(program(), program().steps[i].op);
    }
    for (auto& [key, group] : groups) test.ops.push_back(std::move(group));
    std::sort(test.ops.begin(), test.ops.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    return {};
  }
  // "blk.17.ffn_down" is the same work as any other layer's ffn_down.
  static std::string describe_step(const program::Step& step) {
    return step.layer ? step.label.substr(step.label.rfind('.') + 1) : step.label;
  }

  std::shared_ptr<Engine> engine_;
  const Engine::Internals& internals_;
  const BenchOptions& options_;
  BenchReport report_;
  std::mt19937 random_{1};  // the same tokens every time
  uint64_t done_ = 0, total_ = 0;
};

}  // namespace

double Samples::median() const {
  if (values.empty()) return 0;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 != 0 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
double Samples::least() const { return values.empty() ? 0 : *std::min_element(values.begin(), values.end()); }
double Samples::most() const { return values.empty() ? 0 : *std::max_element(values.begin(), values.end()); }

double BenchTest::percent_of_bandwidth() const {
  return read_ceiling.values.empty() ? 0 : 100 * bytes_per_second / read_ceiling.median();
}
double BenchTest::percent_of_peak() const {
  return operation_ceiling.values.empty() ? 0 : 100 * operations_per_second / operation_ceiling.median();
}

uint64_t bench_context(const BenchOptions& options) {
  return uint64_t{options.depth} + std::max(options.prompt, options.generate);
}

Result<BenchReport> run_bench(const std::shared_ptr<Engine>& engine, const BenchOptions& options) {
  return Bench(engine, options).run();
}

}  // namespace honeycrisp::cli
