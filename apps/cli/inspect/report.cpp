#include "cli/inspect/report.h"

#include "backend/registry.h"
#include "base/memory_size.h"
#include "engine/plan_memory.h"
#include "program/check.h"
#include <honeycrisp/engine.h>

#include <algorithm>
#include <map>

namespace honeycrisp::cli {
namespace {

const uint32_t kChunkRows = EngineOptions{}.chunk;

void count_formats(InspectReport& report) {
  std::map<quant::Format, FormatShare> shares;
  for (const gguf::Tensor& tensor : report.file.tensors()) {
    FormatShare& share = shares[tensor.format];
    share.format = tensor.format;
    share.tensors += 1;
    share.elements += tensor.elements();
    share.bytes += tensor.bytes;
    report.elements += tensor.elements();
    report.tensor_bytes += tensor.bytes;
  }
  for (const auto& [format, share] : shares) report.formats.push_back(share);
  std::sort(report.formats.begin(), report.formats.end(),
            [](const FormatShare& a, const FormatShare& b) { return a.bytes > b.bytes; });
  if (report.elements > 0) report.bits_per_weight = double(report.tensor_bytes) * 8 / double(report.elements);
}

MemoryNeed memory_need(const program::Program& program, uint32_t context, backend::CacheType type) {
  MemoryNeed need;
  need.context = context;
  need.weights = program::resident_bytes(program);
  const auto pages = [](uint64_t positions) {
    return (positions + program::kPagePositions - 1) / program::kPagePositions;
  };
  for (const program::CacheLayer& layer : program.caches) {
    // A window keeps the page that it starts in and the page that is being filled.
    const uint64_t kept = layer.window == 0 ? pages(context) : std::min(pages(context), pages(layer.window) + 1);
    const uint64_t keys = uint64_t(layer.n_kv_heads) * layer.key_dim,
                   values = uint64_t(layer.n_kv_heads) * layer.value_dim;
    need.cache +=
        kept * program::kPagePositions * (backend::cache_bytes(type, keys) + backend::cache_bytes(type, values));
  }
  need.states = program::state_bytes(program) * (uint64_t{1} + EngineOptions{}.state_checkpoints);
  for (const program::Buffer& buffer : program.buffers)
    need.activations += uint64_t{kChunkRows} * buffer.width * sizeof(float);
  return need;
}

TokenCost token_cost(const program::Program& program, backend::CacheType type) {
  TokenCost cost;
  cost.weights = program::weight_bytes(program);
  cost.state = program::state_bytes(program);
  for (const program::CacheLayer& layer : program.caches)
    if (layer.window == 0)
      cost.cache += backend::cache_bytes(type, uint64_t(layer.n_kv_heads) * layer.key_dim) +
                    backend::cache_bytes(type, uint64_t(layer.n_kv_heads) * layer.value_dim);
  for (const program::Step& step : program.steps)
    if (const auto* mixture = std::get_if<program::MixExperts>(&step.op); mixture != nullptr && cost.experts == 0) {
      cost.experts = mixture->router.top_k;
      cost.of_experts = mixture->router.matrix.rows;
    }
  return cost;
}

ProgramCost program_cost(const program::Program& program, const backend::Plan& plan) {
  ProgramCost cost;
  uint64_t in_layers = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    cost.launches += plan.steps[i].launches;
    cost.barriers += plan.steps[i].barriers;
    if (program.steps[i].layer) in_layers += plan.steps[i].launches;
  }
  cost.weight_bytes = program::weight_bytes(program);
  if (program.n_layers > 0) cost.launches_per_layer = double(in_layers) / program.n_layers;
  return cost;
}

// What loading would say of the memory that may be used here; empty if nothing.
std::string no_room(const model::Model& model, const backend::Backend& backend, backend::CompileOptions compile,
                    const EngineOptions& options) {
  const uint64_t machine = usable_memory();
  const auto limits = engine::plan_cache(options, compile.max_positions, model, machine);
  if (!limits) return limits.error().message;
  compile.memory_limit = machine;
  const auto plan = backend.plan(model.program, compile);
  return plan ? "" : plan.error().message;
}

}  // namespace

Result<InspectReport> inspect_file(const std::string& path, const InspectOptions& options) {
  HC_ASSIGN(gguf::File file, gguf::File::open(path));
  InspectReport report{path, std::move(file)};
  count_formats(report);
  report.memory.weights = report.tensor_bytes;
  Result<model::Model> loaded = model::load(report.file, model::LoadOptions{options.context});
  if (!loaded) {
    report.program_error = loaded.error().message;
    return report;
  }
  report.model = std::move(*loaded);
  const program::Program& program = report.model->program;
  const uint32_t context = model::resolve_context(options.context, report.model->summary.trained_context);
  EngineOptions engine;
  engine.kv_type = options.kv_type;
  engine.fast_activations = options.fast_activations;
  const backend::CompileOptions compile{.cache_type = engine::cache_type(engine.kv_type),
                                        .activations = engine::activations(engine),
                                        .threads = options.threads,
                                        .max_rows = engine.chunk,
                                        .max_positions = context};
  report.memory = memory_need(program, context, compile.cache_type);
  report.token = token_cost(program, compile.cache_type);
  Result<backend::Choice> choice = backend::choose_backend(options.backend, program, compile);
  if (!choice) {
    report.program_error = choice.error().message;
    return report;
  }
  report.passed_over = choice->passed_over;
  report.cost = program_cost(program, choice->plan);
  if (choice->plan.buffer_bytes != 0) report.memory.activations = choice->plan.buffer_bytes;
  report.plan = std::move(choice->plan);
  report.no_room = no_room(*report.model, *choice->backend, compile, engine);
  if (report.no_room.empty()) report.no_room = engine::over_device(*report.plan, report.memory.total());
  return report;
}

}  // namespace honeycrisp::cli
