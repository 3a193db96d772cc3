// The form of an inspect report for people. Everything that comes from the file is escaped and cut to a line.
#include "base/text_escape.h"
#include "cli/inspect/report.h"
#include "cli/term/messages.h"
#include "program/check.h"
#include "program/print.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>

namespace honeycrisp::cli {
namespace {

constexpr size_t kValueBytes = 100;   // of one metadata value
constexpr size_t kShownElements = 6;  // of an array

std::string element_text(const gguf::Value& value, size_t i) {
  if (const auto text = value.string_at(i)) return "\"" + escape_for_display(*text, kValueBytes) + "\"";
  if (value.element_type() == gguf::ValueType::kBool) return value.uint_at(i).value_or(0) != 0 ? "true" : "false";
  if (const auto number = value.int_at(i)) return fmt::format("{}", *number);
  if (const auto number = value.uint_at(i)) return fmt::format("{}", *number);
  return fmt::format("{:g}", value.float_at(i).value_or(0));
}

std::string value_text(const gguf::Value& value) {
  if (!value.is_array()) return element_text(value, 0);
  std::string text = fmt::format("{} × {}: [", value.size(), gguf::to_string(value.element_type()));
  for (size_t i = 0; i < value.size(); ++i) {
    if (i == kShownElements || text.size() > kValueBytes) {
      text += ", …";
      break;
    }
    text += (i == 0 ? "" : ", ") + element_text(value, i);
  }
  return text + "]";
}

/// "Label       text"
void line(std::string& out, std::string_view label, std::string_view text) {
  fmt::format_to(std::back_inserter(out), "{:<16}{}\n", label, text);
}

std::string millions(uint64_t n) {
  return n < 1000000      ? fmt::format("{}", n)
         : n < 1000000000 ? fmt::format("{:.1f} M", double(n) / 1e6)
                          : fmt::format("{:.2f} G", double(n) / 1e9);
}

/// "1.9 GB of weights read (8 of 128 experts), 98 kB of cache"
std::string token_text(const InspectReport& report) {
  const TokenCost& token = report.token;
  std::string text = human_bytes(token.weights) + " of weights read";
  if (token.experts != 0) text += fmt::format(" ({} of {} experts)", token.experts, token.of_experts);
  text += fmt::format(", {} of cache", human_bytes(token.cache));
  const auto& caches = report.model->program.caches;
  if (std::any_of(caches.begin(), caches.end(), [](const program::CacheLayer& c) { return c.window != 0; }))
    text += " (layers with a window apart)";
  if (token.state != 0) text += fmt::format(", {} of recurrent state read and written", human_bytes(token.state));
  return text;
}

void add_head(std::string& out, const InspectReport& report) {
  line(out, "File",
       fmt::format("{} ({}, GGUF v{}{})", escape_for_display(report.path), human_bytes(report.file.file_bytes()),
                   report.file.version(),
                   report.file.shards().size() > 1 ? fmt::format(", {} files", report.file.shards().size()) : ""));
  if (report.model) {
    const model::ModelSummary& m = report.model->summary;
    line(out, "Model",
         fmt::format("{}{}: {} layers of width {}, vocabulary {}, trained context {}",
                     m.name.empty() ? "" : escape_for_display(m.name, kValueBytes) + ", ",
                     escape_for_display(m.architecture, kValueBytes), m.n_layers, m.width, m.vocabulary,
                     m.trained_context));
    line(out, "Parameters", millions(m.parameters));
    for (const std::string& note : m.notes) line(out, "Note", escape_for_display(note, 2 * kValueBytes));
  }
  std::string formats;
  for (const FormatShare& share : report.formats)
    formats += fmt::format("{}{} {} ({}, {:.0f} %)", formats.empty() ? "" : ", ", share.tensors,
                           quant::to_string(share.format), human_bytes(share.bytes),
                           100.0 * double(share.bytes) / double(std::max<uint64_t>(report.tensor_bytes, 1)));
  line(out, "Tensors", fmt::format("{}{}{}", report.file.tensors().size(), formats.empty() ? "" : ": ", formats));
  line(out, "Bits per weight", fmt::format("{:.2f}", report.bits_per_weight));
  if (report.model)
    line(out, "Memory",
         fmt::format("{} at context {}: weights {}, cache {}{}, activations {}", human_bytes(report.memory.total()),
                     report.memory.context, human_bytes(report.memory.weights), human_bytes(report.memory.cache),
                     report.memory.states == 0 ? "" : ", recurrent states " + human_bytes(report.memory.states),
                     human_bytes(report.memory.activations)));
  if (report.model) line(out, "Per token", token_text(report));
  if (report.plan) line(out, "Runs on", report.plan->backend);
  if (!report.no_room.empty()) line(out, "Does not fit", escape_for_display(report.no_room, 10 * kValueBytes));
  if (!report.passed_over.empty()) line(out, "Passed over", escape_for_display(report.passed_over, 10 * kValueBytes));
  if (!report.program_error.empty())
    line(out, "Cannot run", escape_for_display(report.program_error, 10 * kValueBytes));
}

void add_tensors(std::string& out, const InspectReport& report) {
  out += "\nTensors\n";
  for (const gguf::Tensor& tensor : report.file.tensors()) {
    const std::vector<uint64_t> shape(tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims);
    fmt::format_to(std::back_inserter(out), "  {:<40} {:<8} {:<20} {:>9}\n",
                   escape_for_display(tensor.name, kValueBytes), quant::to_string(tensor.format),
                   fmt::format("{}", fmt::join(shape, " × ")), human_bytes(tensor.bytes));
  }
}

void add_program(std::string& out, const InspectReport& report) {
  if (!report.plan) {
    out += "\nProgram: none, because the model cannot run here (see above)\n";
    return;
  }
  const program::Program& program = report.model->program;
  fmt::format_to(std::back_inserter(out),
                 "\nProgram on {}\n  per token: {} launches ({:g} per layer), {} barriers, {} of weights read\n",
                 report.plan->backend, report.cost.launches, report.cost.launches_per_layer, report.cost.barriers,
                 human_bytes(report.cost.weight_bytes));
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const program::Step& step = program.steps[i];
    const backend::StepPlan& plan = report.plan->steps[i];
    fmt::format_to(std::back_inserter(out), "  {:<19} {:<11} {:<24} {:>9}  {}\n",
                   escape_for_display(step.label, kValueBytes), program::op_name(step.op), plan.kernels(),
                   human_bytes(program::weight_bytes(program, step.op)), program::describe(program, step.op));
    if (!plan.why_not_fast.empty())
      fmt::format_to(std::back_inserter(out), "  {:<19} not the fast path: {}\n", "", plan.why_not_fast);
  }
}

}  // namespace

std::string report_text(const InspectReport& report, bool with_tensors, bool with_program) {
  std::string out;
  add_head(out, report);
  if (with_program) {
    add_program(out, report);
    return out;
  }
  out += "\nMetadata\n";
  for (const gguf::Metadata::Entry& entry : report.file.metadata().entries())
    fmt::format_to(std::back_inserter(out), "  {:<44} {}\n", escape_for_display(entry.key, kValueBytes),
                   value_text(entry.value));
  if (with_tensors) add_tensors(out, report);
  return out;
}

}  // namespace honeycrisp::cli
