// A bench report for people and for programs.
#include "base/text_escape.h"
#include "cli/bench/bench.h"
#include "cli/term/messages.h"
#include "cli/text_json.h"

#include <boost/json.hpp>
#include <fmt/format.h>

namespace honeycrisp::cli {
namespace {

namespace json = boost::json;

std::string percent(double value) { return value == 0 ? "–" : fmt::format("{:.1f} %", value); }

json::value known(double value) { return value == 0 ? json::value(nullptr) : json::value(value); }
json::value known(const std::string& reason) { return reason.empty() ? json::value(nullptr) : json::value(reason); }

std::string ops_text(const BenchTest& test) {
  double total = 0;
  for (const OpTime& op : test.ops) total += op.seconds;
  std::string out = fmt::format("\n{}, per step of the model: {:.0f} us in\n", test.name, total * 1e6);
  for (const OpTime& op : test.ops) {
    out += fmt::format("  {:<14} {:>4} x {:<34} {:>10.1f} us {:>5.1f} %", op.op, op.steps, op.kernel, op.seconds * 1e6,
                       100 * op.seconds / total);
    if (op.weight_bytes != 0)
      out += fmt::format("  {:>6.1f} GB/s of weights", double(op.weight_bytes) / op.seconds / 1e9);
    out += "\n";
  }
  return out;
}

json::object test_json(const BenchTest& test) {
  json::array runs, ops;
  for (const double value : test.tokens_per_second.values) runs.push_back(value);
  for (const OpTime& op : test.ops)
    ops.push_back(json::object{{"op", op.op},
                               {"kernel", op.kernel},
                               {"steps", op.steps},
                               {"seconds", op.seconds},
                               {"weight_bytes", op.weight_bytes}});
  json::object object{{"test", test.name},
                      {"tokens_per_second", test.tokens_per_second.median()},
                      {"least", test.tokens_per_second.least()},
                      {"most", test.tokens_per_second.most()},
                      {"runs", std::move(runs)},
                      {"percent_of_bandwidth", known(test.percent_of_bandwidth())},
                      {"percent_of_peak", known(test.percent_of_peak())},
                      {"bytes_per_second", test.bytes_per_second},
                      {"operations_per_second", test.operations_per_second},
                      {"read_ceiling", known(test.read_ceiling.median())},
                      {"operation_ceiling", known(test.operation_ceiling.median())}};
  if (!ops.empty()) object["ops"] = std::move(ops);
  return object;
}

}  // namespace

std::string bench_text(const BenchReport& report) {
  const ModelInfo& info = report.info;
  std::string out = fmt::format("{}  {}  {} of weights per token\n{}\n\n", escape_for_display(info.path, 100),
                                info.quantization, human_bytes(info.weight_bytes_per_token), info.backend);
  out +=
      fmt::format("{:<18} {:>10}  {:<21} {:>12} {:>10}\n", "test", "tokens/s", "least … most", "of memory", "of peak");
  for (const BenchTest& test : report.tests)
    out += fmt::format("{:<18} {:>10.2f}  {:<21} {:>12} {:>10}\n", test.name, test.tokens_per_second.median(),
                       fmt::format("{:.2f} … {:.2f}", test.tokens_per_second.least(), test.tokens_per_second.most()),
                       percent(test.percent_of_bandwidth()), percent(test.percent_of_peak()));
  out += "\n";
  if (!report.no_ceilings.empty()) {
    out += fmt::format("No share of the device's limits: {}\n", report.no_ceilings);
  } else {
    for (const BenchTest& test : report.tests)
      if (!test.read_ceiling.values.empty())
        out += fmt::format("Beside {}: memory read at {:.1f} GB/s, {:.0f} G operations/s ({})\n", test.name,
                           test.read_ceiling.median() / 1e9, test.operation_ceiling.median() / 1e9, report.arithmetic);
  }
  for (const BenchTest& test : report.tests)
    if (!test.ops.empty()) out += ops_text(test);
  if (!report.no_op_times.empty()) out += fmt::format("No times per op: {}\n", report.no_op_times);
  return out;
}

std::string bench_json(const BenchReport& report) {
  const ModelInfo& info = report.info;
  json::array tests;
  for (const BenchTest& test : report.tests) tests.push_back(test_json(test));
  return json::serialize(json::object{{"model", valid_utf8(info.path)},
                                      {"quantization", info.quantization},
                                      {"backend", valid_utf8(info.backend)},
                                      {"weight_bytes_per_token", info.weight_bytes_per_token},
                                      {"load_seconds", report.load_seconds},
                                      {"arithmetic", report.arithmetic},
                                      {"no_ceilings", known(report.no_ceilings)},
                                      {"no_op_times", known(report.no_op_times)},
                                      {"tests", std::move(tests)}}) +
         "\n";
}

}  // namespace honeycrisp::cli
