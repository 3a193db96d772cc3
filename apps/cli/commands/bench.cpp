// `honeycrisp bench`: how fast a model runs here, held against what this machine can do at most.
#include "cli/bench/bench.h"

#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/models/resolve.h"
#include "cli/options.h"
#include "cli/term/interrupt.h"
#include "cli/term/progress.h"
#include "cli/term/terminal.h"

#include <chrono>
#include <memory>

namespace honeycrisp::cli {
namespace {

struct BenchArguments {
  ModelOptions model;
  int64_t prompt = 512, generate = 128, depth = 0, sequences = 1, repetitions = 5, chunk = EngineOptions{}.chunk;
  bool ops = false, json = false;
};

Result<void> run(BenchArguments arguments) {
  HC_ASSIGN(const std::string path, resolve_model_or_default(arguments.model.model));
  BenchOptions options{.prompt = uint32_t(arguments.prompt),
                       .generate = uint32_t(arguments.generate),
                       .depth = uint32_t(arguments.depth),
                       .sequences = uint32_t(arguments.sequences),
                       .repetitions = uint32_t(arguments.repetitions),
                       .ops = arguments.ops,
                       .should_stop = [] { return interrupt_requested(); }};
  arguments.model.context = int64_t(bench_context(options));
  const Stopwatch loading;
  HC_ASSIGN(const std::shared_ptr<Engine> engine,
            load_engine(path, arguments.model, uint32_t(arguments.chunk), uint32_t(arguments.sequences) + 1));
  const double load_seconds = loading.seconds();

  const InterruptScope interruptible(/*second_exits=*/true);
  ProgressBar bar("measuring", ProgressBar::Rate::kNone, std::chrono::milliseconds(300));
  options.progress = [&](uint64_t done, uint64_t total) { bar.update(done, total); };
  HC_ASSIGN(BenchReport report, run_bench(engine, options));
  report.load_seconds = load_seconds;
  clear_progress_line();
  return Output().write(arguments.json ? bench_json(report) : bench_text(report));
}

}  // namespace

void add_bench(CommandTree& tree) {
  auto arguments = std::make_shared<BenchArguments>();
  CommandLine line = tree.add("bench", "Measure prefill and decode against what this machine can do at most");
  constexpr int64_t kMostTokens = 1 << 20;
  line.integer("-p,--prompt", arguments->prompt, 0, kMostTokens, "Tokens of the prefill test; 0: leave it out", "512");
  line.integer("-n,--generate", arguments->generate, 0, kMostTokens, "Tokens of the decode test; 0: leave it out",
               "128");
  line.integer("-d,--depth", arguments->depth, 0, kMostTokens, "Positions in the cache before either test", "0");
  line.integer("-s,--sequences", arguments->sequences, 1, 256, "Sequences decoded side by side", "1");
  line.integer("-r,--repetitions", arguments->repetitions, 1, 1000, "Runs of each test, after one to warm up", "5");
  line.integer("--chunk", arguments->chunk, 1, 4096, "Prompt positions computed at once", "512");
  line.flag("--ops", arguments->ops, "Also where the time goes, by op");
  line.flag("--json", arguments->json, "The report as JSON");
  add_model_option(line, arguments->model);
  add_backend_option(line, arguments->model);
  add_kv_type_option(line, arguments->model);
  add_loading_options(line, arguments->model);
  line.footer(
      R"(pp512: prefill of 512 tokens. tg128: decode of 128; tg128x8: by each of 8
sequences, all tokens counted. @ d4096: after 4096 positions. The tokens are
random, the figures medians. tg128 in flight, on GPUs that have it: greedy decode
of one sequence that goes on while the host looks at what came back.
"of memory": bytes of weights and cache that a step must read, times steps per
second, as a share of what the same threads or device read beside each run, from
end to end through the weights. "of peak": multiply-adds that the model asks
for, as a share of the fastest arithmetic measured there. --ops has both per op,
as "mem" and "peak". More than 100 %: read from a cache, or others held up the
measurement of the limit.

Examples:
  honeycrisp bench -m smollm2
  honeycrisp bench -m model.gguf -p 0 -n 64 -d 4096    decode far into a context
  honeycrisp bench -m model.gguf -s 8 --json           eight sequences at once)");
  line.action([arguments] { return run(*arguments); },
              [arguments] {
                return arguments->prompt == 0 && arguments->generate == 0
                           ? "-p 0 and -n 0 together leave nothing to measure"
                           : "";
              });
}

}  // namespace honeycrisp::cli
