// The JSON form of an inspect report. All of it: arrays are not cut. Text that is not UTF-8 gets U+FFFD, numbers that
// JSON cannot hold (NaN, infinities) become null.
#include "cli/inspect/report.h"
#include "cli/text_json.h"
#include "program/check.h"
#include "program/print.h"

#include <boost/json.hpp>
#include <cmath>

namespace honeycrisp::cli {
namespace {

namespace json = boost::json;

/// Element `i` of a value; a scalar is its own element 0.
json::value element(const gguf::Value& value, size_t i) {
  switch (value.element_type()) {
    case gguf::ValueType::kString: return json::value(valid_utf8(value.string_at(i).value_or("")));
    case gguf::ValueType::kBool: return json::value(value.uint_at(i).value_or(0) != 0);
    case gguf::ValueType::kFloat32:
    case gguf::ValueType::kFloat64: {
      const double number = value.float_at(i).value_or(NAN);
      return std::isfinite(number) ? json::value(number) : json::value(nullptr);
    }
    default: break;
  }
  if (const auto number = value.uint_at(i)) return json::value(*number);
  if (const auto number = value.int_at(i)) return json::value(*number);
  return nullptr;
}

json::value metadata_value(const gguf::Value& value) {
  if (!value.is_array()) return element(value, 0);
  json::array array;
  array.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) array.push_back(element(value, i));
  return array;
}

json::array tensors_json(const InspectReport& report) {
  json::array tensors;
  for (const gguf::Tensor& tensor : report.file.tensors()) {
    json::array shape;
    for (uint32_t d = 0; d < tensor.n_dims; ++d) shape.push_back(tensor.dims[d]);
    tensors.push_back(json::object{{"name", valid_utf8(tensor.name)},
                                   {"format", quant::to_string(tensor.format)},
                                   {"shape", std::move(shape)},
                                   {"bytes", tensor.bytes},
                                   {"shard", tensor.shard},
                                   {"offset", tensor.file_offset}});
  }
  return tensors;
}

json::value program_json(const InspectReport& report) {
  if (!report.plan) return nullptr;
  const program::Program& program = report.model->program;
  json::array ops;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const program::Step& step = program.steps[i];
    const backend::StepPlan& plan = report.plan->steps[i];
    ops.push_back(json::object{
        {"op", program::op_name(step.op)},
        {"label", valid_utf8(step.label)},
        {"layer", step.layer ? json::value(*step.layer) : json::value(nullptr)},
        {"computes", program::describe(program, step.op)},
        {"kernel", plan.kernel},
        {"prompt_kernel", plan.prompt_kernel.empty() ? json::value(nullptr) : json::value(plan.prompt_kernel)},
        {"why_not_fast", plan.why_not_fast.empty() ? json::value(nullptr) : json::value(plan.why_not_fast)},
        {"launches", plan.launches},
        {"barriers", plan.barriers},
        {"weight_bytes", program::weight_bytes(program, step.op)}});
  }
  const double per_layer = report.cost.launches_per_layer;
  const bool whole = per_layer == std::floor(per_layer);
  return json::object{{"backend", report.plan->backend},
                      {"launches_per_layer", whole ? json::value(uint64_t(per_layer)) : json::value(per_layer)},
                      {"launches", report.cost.launches},
                      {"barriers", report.cost.barriers},
                      {"weight_bytes", report.cost.weight_bytes},
                      {"ops", std::move(ops)}};
}

json::value token_json(const InspectReport& report) {
  if (!report.model) return nullptr;
  const TokenCost& token = report.token;
  return json::object{{"weights", token.weights},
                      {"cache", token.cache},
                      {"state", token.state},
                      {"experts", token.experts},
                      {"of_experts", token.of_experts}};
}

json::value model_json(const InspectReport& report) {
  if (!report.model) return nullptr;
  const model::ModelSummary& summary = report.model->summary;
  json::array notes;
  for (const std::string& note : summary.notes) notes.push_back(json::value(valid_utf8(note)));
  return json::object{{"architecture", valid_utf8(summary.architecture)},
                      {"name", valid_utf8(summary.name)},
                      {"layers", summary.n_layers},
                      {"width", summary.width},
                      {"vocabulary", summary.vocabulary},
                      {"trained_context", summary.trained_context},
                      {"parameters", summary.parameters},
                      {"notes", std::move(notes)}};
}

}  // namespace

std::string report_json(const InspectReport& report) {
  json::array shards, formats;
  for (const MappedFile& shard : report.file.shards())
    shards.push_back(json::object{{"path", valid_utf8(shard.path())}, {"bytes", shard.bytes().size()}});
  for (const FormatShare& share : report.formats)
    formats.push_back(json::object{{"format", quant::to_string(share.format)},
                                   {"tensors", share.tensors},
                                   {"elements", share.elements},
                                   {"bytes", share.bytes}});
  json::object metadata;
  for (const gguf::Metadata::Entry& entry : report.file.metadata().entries())
    metadata[valid_utf8(entry.key)] = metadata_value(entry.value);
  const MemoryNeed& memory = report.memory;
  json::object root{
      {"path", valid_utf8(report.path)},
      {"gguf_version", report.file.version()},
      {"bytes", report.file.file_bytes()},
      {"files", std::move(shards)},
      {"model", model_json(report)},
      {"elements", report.elements},
      {"bits_per_weight", report.bits_per_weight},
      {"formats", std::move(formats)},
      {"memory", json::object{{"context", memory.context},
                              {"weights", memory.weights},
                              {"cache", memory.cache},
                              {"states", memory.states},
                              {"activations", memory.activations},
                              {"total", memory.total()}}},
      {"per_token", token_json(report)},
      {"metadata", std::move(metadata)},
      {"tensors", tensors_json(report)},
      {"program", program_json(report)},
      {"no_room", report.no_room.empty() ? json::value(nullptr) : json::value(valid_utf8(report.no_room))},
      {"passed_over", report.passed_over.empty() ? json::value(nullptr) : json::value(valid_utf8(report.passed_over))},
      {"program_error",
       report.program_error.empty() ? json::value(nullptr) : json::value(valid_utf8(report.program_error))}};
  return json::serialize(root) + "\n";
}

}  // namespace honeycrisp::cli
