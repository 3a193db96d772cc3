#include "cli/bench/bench.h"

#include "base/checked.h"
#include "base/stopwatch.h"
#include "cli/bench/other_load.h"
#include "engine/internals.h"
#include "program/check.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <random>

namespace honeycrisp::cli {
namespace {

// What something has at least to read and to compute, in bytes and operations (a multiply-add is two).
struct Work {
  double bytes = 0, operations = 0;
};

class Bench {
 public:
  Bench(const std::shared_ptr<Engine>& engine, const BenchOptions& options)
      : engine_(engine), internals_(engine->internals()), options_(options) {
    report_.info = engine->info();
    total_ =
        options.depth + uint64_t{options.repetitions + 1} *
                            (options.prompt + uint64_t{options.generate} * (options.sequences + (flies() ? 1 : 0)));
  }

  Result<BenchReport> run() {
    HC_TRY(try_ceilings());
    HC_TRY(make_base());
    if (options_.prompt != 0) HC_TRY(prefill());
    if (options_.generate != 0) HC_TRY(decode());
    if (options_.generate != 0 && flies()) HC_TRY(decode_in_flight());
    return std::move(report_);
  }

 private:
  bool flies() const { return options_.sequences == 1 && internals_.executor.most_in_flight() != 0; }
  const program::Program& program() const { return internals_.model.program; }

  // Whether the backend can measure them.
  Result<void> try_ceilings() {
    const auto ceilings = internals_.executor.measure_ceilings(report_.info.weight_bytes_per_token);
    if (ceilings) {
      report_.arithmetic = ceilings->arithmetic;
    } else {
      if (ceilings.error().code != ErrorCode::kUnsupported) return tl::unexpected<Error>(ceilings.error());
      report_.no_ceilings = ceilings.error().message;
    }
    return {};
  }
  Result<void> measure_ceilings(BenchTest& test) {
    if (!report_.no_ceilings.empty()) return {};
    HC_ASSIGN(const backend::Ceilings ceilings,
              internals_.executor.measure_ceilings(report_.info.weight_bytes_per_token));
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

  // A session that has computed `depth` positions: tests go on from copies of it.
  Result<void> make_base() {
    HC_ASSIGN(base_, engine_->new_session());
    if (options_.depth == 0) return {};
    const std::vector<Token> tokens = make_tokens(options_.depth);
    for (uint32_t done = 0; done < options_.depth;) {  // whole chunks, which one append() that may be stopped would cut
      HC_TRY(stop_if_asked());
      const uint32_t n = std::min(internals_.chunk, options_.depth - done);
      HC_TRY(base_->append(std::span(tokens).subspan(done, n)));
      done += n;
      advance(n);
    }
    return {};
  }
  Result<std::vector<Session>> make_sessions(uint32_t n) {
    std::vector<Session> sessions;
    for (uint32_t i = 0; i < n; ++i) {
      HC_ASSIGN(Session session, base_->fork());
      sessions.push_back(std::move(session));
    }
    return sessions;
  }

  Result<void> prefill() {
    BenchTest test{.name = name(fmt::format("pp{}", options_.prompt))};
    const OtherLoad others;
    for (uint32_t run = 0; run <= options_.repetitions; ++run) {  // the first one warms up
      HC_TRY(stop_if_asked());
      HC_ASSIGN(std::vector<Session> sessions, make_sessions(1));
      const std::vector<Token> tokens = make_tokens(options_.prompt);
      if (run != 0) HC_TRY(measure_ceilings(test));
      const Stopwatch watch;
      HC_TRY(sessions[0].append(tokens));
      if (run != 0)
        test.tokens_per_second.values.push_back(options_.prompt / watch.seconds());
      else if (options_.depth == 0)
        report_.first_prompt_seconds = watch.seconds();
      advance(options_.prompt);
    }
    test.percent_of_others = others.percent();
    describe_work(test, options_.prompt / test.tokens_per_second.median() / chunks(),
                  [&](const program::Step& step) { return prefill_work(step); });
    if (options_.ops) HC_TRY(profile_prefill(test));
    report_.tests.push_back(std::move(test));
    return {};
  }

  Result<void> decode() {
    const std::string many = options_.sequences == 1 ? "" : fmt::format("x{}", options_.sequences);
    BenchTest test{.name = name(fmt::format("tg{}{}", options_.generate, many))};
    HC_TRY(time_decode(test, [&](std::vector<Session>& sessions, uint32_t) { return generate_one(sessions); }));
    if (options_.ops) HC_TRY(profile_decode(test));
    report_.tests.push_back(std::move(test));
    return {};
  }
  // One greedy sequence, as generate() has it computed: the device goes on while the host looks at what came back.
  Result<void> decode_in_flight() {
    BenchTest test{.name = name(fmt::format("tg{} in flight", options_.generate))};
    HC_TRY(time_decode(test, [&](std::vector<Session>& sessions, uint32_t left) -> Result<void> {
      HC_TRY(stop_if_asked());
      Session& session = sessions[0];
      const Token token = session.top_logits().n == 0 ? make_tokens(1)[0] : session.top_logits().tokens[0];
      return session.decode(token, 1, std::min(left, engine::kAhead));
    }));
    report_.tests.push_back(std::move(test));
    return {};
  }
  // `step(sessions, left)`: a token of each; so many are left after it.
  template <class Step>
  Result<void> time_decode(BenchTest& test, Step step) {
    const OtherLoad others;
    for (uint32_t run = 0; run <= options_.repetitions; ++run) {
      HC_TRY(stop_if_asked());
      HC_ASSIGN(std::vector<Session> sessions, make_sessions(options_.sequences));
      if (run != 0) HC_TRY(measure_ceilings(test));
      const Stopwatch watch;
      for (uint32_t i = 1; i <= options_.generate; ++i) HC_TRY(step(sessions, options_.generate - i));
      const double tokens = double(options_.generate) * options_.sequences;
      if (run != 0) test.tokens_per_second.values.push_back(tokens / watch.seconds());
      advance(uint64_t{options_.generate} * options_.sequences);
    }
    test.percent_of_others = others.percent();
    describe_work(test, options_.sequences / test.tokens_per_second.median(),
                  [&](const program::Step& s) { return decode_work(s); });
    return {};
  }

  // A token for each of the sessions, computed together.
  Result<void> generate_one(std::vector<Session>& sessions) {
    HC_TRY(stop_if_asked());
    const std::vector<Token> tokens = make_tokens(uint32_t(sessions.size()));
    std::vector<Feed> feeds(sessions.size());
    for (size_t s = 0; s < sessions.size(); ++s)
      feeds[s] = {&sessions[s], std::span(tokens).subspan(s, 1), /*generated=*/true};
    return engine_->step(feeds);
  }

  uint32_t chunks() const { return ceil_div(options_.prompt, internals_.chunk); }

  // Of a computed step, that is a chunk of the prompt on average: weights once, the cache once, logits of one row.
  Work prefill_work(const program::Step& step) const {
    const bool logits = std::holds_alternative<program::Logits>(step.op);
    double multiply_adds = double(program::weight_multiply_adds(program(), step.op)) * (logits ? 1 : options_.prompt);
    double cache = 0;
    for (uint32_t i = 0; i < options_.prompt; ++i)
      multiply_adds += double(program::attention_multiply_adds(program(), step.op, options_.depth + i));
    for (uint32_t i = 0; i < options_.prompt; i += internals_.chunk)
      cache += cache_bytes(step.op, options_.depth + std::min(options_.prompt, i + internals_.chunk) - 1);
    return {double(program::weight_bytes(program(), step.op)) + cache / chunks(), 2 * multiply_adds / chunks()};
  }
  // Of a computed step: weights once (of a mixture at least one row's experts), and every sequence's cache.
  Work decode_work(const program::Step& step) const {
    const uint32_t middle = options_.depth + options_.generate / 2;
    return {double(program::weight_bytes(program(), step.op)) + cache_bytes(step.op, middle) * options_.sequences,
            2.0 * options_.sequences *
                double(program::weight_multiply_adds(program(), step.op) +
                       program::attention_multiply_adds(program(), step.op, middle))};
  }
  double cache_bytes(const program::Op& op, uint32_t position) const {
    return double(backend::cache_bytes(internals_.cache_type, program::cache_values_read(program(), op, position)));
  }

  // `seconds` of a computed step; `work_of` each step of the program.
  template <class WorkOf>
  void describe_work(BenchTest& test, double seconds, WorkOf work_of) const {
    for (const program::Step& step : program().steps) {
      const Work work = work_of(step);
      test.bytes_per_step += work.bytes;
      test.operations_per_step += work.operations;
    }
    test.bytes_per_second = test.bytes_per_step / seconds;
    test.operations_per_second = test.operations_per_step / seconds;
  }

  Result<void> profile_prefill(BenchTest& test) {
    StepTimes times;
    for (uint32_t run = 0; run < options_.repetitions; ++run) {
      HC_TRY(stop_if_asked());
      HC_ASSIGN(std::vector<Session> sessions, make_sessions(1));
      const std::vector<Token> tokens = make_tokens(options_.prompt);
      HC_TRY(profile(times, [&] { return sessions[0].append(tokens); }));
    }
    report_ops(test, times, backend::Role::kPrompt, chunks(),
               [&](const program::Step& step) { return prefill_work(step); });
    return {};
  }
  Result<void> profile_decode(BenchTest& test) {
    StepTimes times;
    HC_ASSIGN(std::vector<Session> sessions, make_sessions(options_.sequences));
    for (uint32_t i = 0; i < options_.generate; ++i) HC_TRY(profile(times, [&] { return generate_one(sessions); }));
    report_ops(test, times, backend::Role::kGenerated, 1, [&](const program::Step& step) { return decode_work(step); });
    return {};
  }

  using StepTimes = std::vector<Samples>;  // [Program::steps], in seconds

  template <class Body>
  Result<void> profile(StepTimes& times, Body body) {
    std::vector<double> seconds(program().steps.size());
    if (auto begun = internals_.executor.profile(seconds.data()); !begun) {
      if (begun.error().code != ErrorCode::kUnsupported) return begun;
      report_.no_op_times = begun.error().message;
      return {};
    }
    const Result<void> done = body();
    HC_TRY(internals_.executor.profile(nullptr));
    HC_TRY(done);
    times.resize(seconds.size());
    for (size_t i = 0; i < seconds.size(); ++i) times[i].values.push_back(seconds[i]);
    return {};
  }
  // `per_body`: computed steps in what was timed.
  template <class WorkOf>
  void report_ops(BenchTest& test, const StepTimes& times, backend::Role role, uint32_t per_body,
                  WorkOf work_of) const {
    std::map<std::pair<std::string, std::string>, OpTime> groups;
    for (size_t i = 0; i < times.size(); ++i) {
      const program::Step& step = program().steps[i];
      const std::string op = describe_step(step);
      const backend::StepPlan& plan = internals_.plan.steps[i];
      const bool other = role == backend::Role::kPrompt && !plan.prompt_kernel.empty();
      const std::string& kernel = other ? plan.prompt_kernel : plan.kernel;
      OpTime& group = groups[{op, kernel}];
      group.op = op;
      group.kernel = kernel;
      ++group.steps;
      group.seconds += times[i].median() / per_body;
      group.weight_bytes += program::weight_bytes(program(), step.op);
      const Work work = work_of(step);
      group.bytes += work.bytes;
      group.operations += work.operations;
    }
    for (auto& [key, group] : groups) test.ops.push_back(std::move(group));
    std::sort(test.ops.begin(), test.ops.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  }
  // "blk.17.ffn_down" is the same work as any other layer's ffn_down.
  static std::string describe_step(const program::Step& step) {
    return step.layer ? step.label.substr(step.label.rfind('.') + 1) : step.label;
  }

  std::shared_ptr<Engine> engine_;
  const Engine::Internals& internals_;
  const BenchOptions& options_;
  BenchReport report_;
  std::optional<Session> base_;
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
