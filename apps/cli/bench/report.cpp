// A bench report for people, in lines of 80 columns as far as names let them, and for programs.
#include "base/text_escape.h"
#include "cli/bench/bench.h"
#include "cli/term/messages.h"
#include "cli/text_json.h"

#include <algorithm>
#include <boost/json.hpp>
#include <fmt/format.h>
#include <optional>

namespace honeycrisp::cli {
namespace {

namespace json = boost::json;

constexpr double kBusy = 5;  // percent of the CPUs that others may take before it is worth telling

json::value known(double value) { return value == 0 ? json::value(nullptr) : json::value(value); }
json::value known(const std::optional<double>& value) { return value ? json::value(*value) : json::value(nullptr); }
json::value known(const std::string& reason) { return reason.empty() ? json::value(nullptr) : json::value(reason); }

// A table with the first columns to the left, the others to the right.
using Rows = std::vector<std::vector<std::string>>;

// Columns on a terminal: a byte that continues a UTF-8 character takes none.
size_t columns(std::string_view text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
}

std::string table_text(const Rows& rows, size_t left) {
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - columns(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (i < left ? row[i] + space : space + row[i]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string percent(double value) { return value == 0 ? "–" : fmt::format("{:.1f} %", value); }
std::string giga(double value) { return value == 0 ? "" : fmt::format("{:.1f}", value / 1e9); }
// Of a limit; nothing where that is not known.
std::string share(double value, const Samples& limit) {
  return value == 0 || limit.values.empty() ? "" : fmt::format("{:.0f} %", 100 * value / limit.median());
}
std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6)
         : seconds < 1  ? fmt::format("{:.2f} ms", seconds * 1e3)
                        : fmt::format("{:.2f} s", seconds);
}

// "project.q4_1.avx2" without the instruction set, which is the same everywhere and part of the backend's name.
std::string short_kernel(const std::string& kernel, const std::string& backend) {
  const size_t dot = kernel.rfind('.');
  const bool told = dot != std::string::npos && backend.find(kernel.substr(dot + 1)) != std::string::npos;
  return told ? kernel.substr(0, dot) : kernel;
}

// Where a step of the model spends its time, what it reads and computes there, and the shares of the limits.
std::string ops_text(const BenchTest& test, const std::string& backend) {
  double total = 0;
  for (const OpTime& op : test.ops) total += op.seconds;
  Rows rows = {{"  op", "kernel", "time", "share", "GB/s", "mem", "G/s", "peak"}};
  for (const OpTime& op : test.ops) {
    const double read = op.bytes / op.seconds, computed = op.operations / op.seconds;
    rows.push_back({fmt::format("  {} ×{}", op.op, op.steps), short_kernel(op.kernel, backend), time_text(op.seconds),
                    fmt::format("{:.0f} %", 100 * op.seconds / total), giga(read), share(read, test.read_ceiling),
                    giga(computed), share(computed, test.operation_ceiling)});
  }
  return fmt::format("\n{}, a step of the model (median): {}\n", test.name, time_text(total)) + table_text(rows, 2);
}

// "tg128: a step reads 97.1 MB and computes 0.27 G operations
//   11.2 of 28.0 GB/s; 32 of 700 G/s (int8, avx2); memory limits"
std::string limits_text(const BenchTest& test, const std::string& arithmetic) {
  const bool reads = !test.read_ceiling.values.empty(), computes = !test.operation_ceiling.values.empty();
  std::string text = fmt::format("{}: a step reads {} and computes {:.2f} G operations", test.name,
                                 human_bytes(uint64_t(test.bytes_per_step)), test.operations_per_step / 1e9);
  text += "\n";
  if (reads)
    text += fmt::format("  {:.1f} of {:.1f} GB/s", test.bytes_per_second / 1e9, test.read_ceiling.median() / 1e9);
  if (computes)
    text += fmt::format("{}{:.0f} of {:.0f} G/s ({})", reads ? "; " : "  ", test.operations_per_second / 1e9,
                        test.operation_ceiling.median() / 1e9, arithmetic);
  if (reads && computes)
    text += test.percent_of_bandwidth() >= test.percent_of_peak() ? "; memory limits" : "; arithmetic limits";
  return text + "\n";
}

json::object test_json(const BenchTest& test) {
  json::array runs, ops;
  for (const double value : test.tokens_per_second.values) runs.push_back(value);
  for (const OpTime& op : test.ops)
    ops.push_back(json::object{{"op", op.op},
                               {"kernel", op.kernel},
                               {"steps", op.steps},
                               {"seconds", op.seconds},
                               {"weight_bytes", op.weight_bytes},
                               {"bytes", op.bytes},
                               {"operations", op.operations}});
  json::object object{{"test", test.name},
                      {"tokens_per_second", test.tokens_per_second.median()},
                      {"least", test.tokens_per_second.least()},
                      {"most", test.tokens_per_second.most()},
                      {"runs", std::move(runs)},
                      {"percent_of_bandwidth", known(test.percent_of_bandwidth())},
                      {"percent_of_peak", known(test.percent_of_peak())},
                      {"bytes_per_step", test.bytes_per_step},
                      {"operations_per_step", test.operations_per_step},
                      {"bytes_per_second", test.bytes_per_second},
                      {"operations_per_second", test.operations_per_second},
                      {"read_ceiling", known(test.read_ceiling.median())},
                      {"operation_ceiling", known(test.operation_ceiling.median())},
                      {"percent_of_others", known(test.percent_of_others)}};
  if (!ops.empty()) object["ops"] = std::move(ops);
  return object;
}

}  // namespace

std::string bench_text(const BenchReport& report) {
  const ModelInfo& info = report.info;
  std::string out = fmt::format("{}\n{}, {} of weights per token, loaded in {}\n{}\n",
                                escape_for_display(info.path, 100), info.quantization,
                                human_bytes(info.weight_bytes_per_token), time_text(report.load_seconds), info.backend);
  if (const auto first = report.first_token_seconds())
    out += fmt::format("First token, loading and the prompt included: {}\n", time_text(*first));
  out += "\n";
  Rows rows = {{"test", "tokens/s", "least … most", "of memory", "of peak"}};
  for (const BenchTest& test : report.tests)
    rows.push_back({test.name, fmt::format("{:.2f}", test.tokens_per_second.median()),
                    fmt::format("{:.2f} … {:.2f}", test.tokens_per_second.least(), test.tokens_per_second.most()),
                    percent(test.percent_of_bandwidth()), percent(test.percent_of_peak())});
  out += table_text(rows, 1) + "\n";
  if (!report.no_ceilings.empty()) out += fmt::format("No share of the device's limits: {}\n", report.no_ceilings);
  double others = 0;
  for (const BenchTest& test : report.tests) {
    if (!test.read_ceiling.values.empty() || !test.operation_ceiling.values.empty())
      out += limits_text(test, report.arithmetic);
    others = std::max(others, test.percent_of_others.value_or(0));
  }
  if (others > kBusy)
    out += fmt::format("Others took up to {:.0f} % of the CPUs meanwhile: repeat this on a quiet machine\n", others);
  for (const BenchTest& test : report.tests)
    if (!test.ops.empty()) out += ops_text(test, info.backend);
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
                                      {"first_token_seconds", known(report.first_token_seconds())},
                                      {"arithmetic", report.arithmetic},
                                      {"no_ceilings", known(report.no_ceilings)},
                                      {"no_op_times", known(report.no_op_times)},
                                      {"tests", std::move(tests)}}) +
         "\n";
}

}  // namespace honeycrisp::cli
