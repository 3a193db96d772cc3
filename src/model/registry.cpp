#include "base/text_escape.h"
#include "model/families/families.h"
#include "model/model.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace honeycrisp::model {
namespace {

struct Family {
  const char* architecture;  // general.architecture
  FamilyFunction build;
  bool has_experts = false;  // reads expert_count; elsewhere a mixture of experts is refused
};

// The comments are the published models, as docs/models.md lists them (scripts/models_page.py).
constexpr Family kFamilies[] = {
    {"gemma2", build_gemma2},              // Gemma 2
    {"gemma3", build_gemma3},              // Gemma 3 (text)
    {"gemma4", build_gemma4, true},        // Gemma 4 (text): dense, E, A4B
    {"gpt-oss", build_gpt_oss, true},      // gpt-oss-20b, gpt-oss-120b
    {"granite", build_granite},            // Granite 3.x and 4.x, dense
    {"llama", build_llama, true},          // Llama 2, 3.x; Mistral 7B, Nemo, Small; Mixtral; SmolLM2; TinyLlama
    {"mistral3", build_mistral3},          // Mistral Small 3.1, 3.2; Ministral 3
    {"olmo2", build_olmo2},                // OLMo 2, OLMo 3
    {"phi3", build_phi3},                  // Phi-3, Phi-3.5 (mini, medium), Phi-4, Phi-4-mini
    {"qwen2", build_qwen2},                // Qwen2, Qwen2.5
    {"qwen2moe", build_qwen2moe, true},    // Qwen1.5-MoE, Qwen2-57B-A14B
    {"qwen3", build_qwen3},                // Qwen3, dense
    {"qwen3moe", build_qwen3moe, true},    // Qwen3-30B-A3B, Qwen3-235B-A22B
    {"qwen3next", build_qwen3next, true},  // Qwen3-Next
    {"qwen35", build_qwen35},              // Qwen3.5, dense
    {"qwen35moe", build_qwen35moe, true},  // Qwen3.5-35B-A3B and larger
    {"smollm3", build_smollm3},            // SmolLM3
};

}  // namespace

std::vector<std::string> architectures() {
  std::vector<std::string> names;
  for (const Family& f : kFamilies) names.emplace_back(f.architecture);
  std::sort(names.begin(), names.end());
  return names;
}

uint32_t resolve_context(uint32_t asked, uint32_t trained) {
  if (asked != 0) return asked;
  return trained == 0 ? kDefaultContext : std::min(trained, kDefaultContext);
}

Result<Model> load(const gguf::File& file, const LoadOptions& options) {
  Model model;
  HC_ASSIGN(const std::string_view name, file.metadata().require_string("general.architecture"));
  const auto family =
      std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const Family& f) { return name == f.architecture; });
  if (family == std::end(kFamilies))
    return unsupported("general.architecture: '{}' is not supported (supported: {})", escape_for_display(name, 64),
                       fmt::join(architectures(), ", "));
  if (file.tensors().empty()) return invalid("the file has no tensors: it is a vocabulary, not a model");

  const HyperParameters hyper(file.metadata(), std::string(name));
  if (!family->has_experts) {
    HC_ASSIGN(const uint32_t experts, hyper.get("expert_count", 0, 0, UINT32_MAX));
    if (experts != 0)
      return unsupported("{}: {}, but mixtures of experts are not supported in this family", hyper.key("expert_count"),
                         experts);
  }
  HC_ASSIGN(const Config config, read_config(file, hyper));
  Builder builder(file, config.n_layers, config.vocabulary);
  const LoadOptions resolved{.context = resolve_context(options.context, config.trained_context)};
  HC_TRY(family->build({hyper, config, resolved, builder, model.summary.notes}));
  HC_ASSIGN(model.program, std::move(builder).finish(model.summary.notes));

  ModelSummary& s = model.summary;
  s.architecture = name;
  if (const gguf::Value* v = file.metadata().find("general.name"); v != nullptr)
    s.name = std::string(v->as_string().value_or(""));
  s.n_layers = config.n_layers;
  s.width = config.width;
  s.vocabulary = config.vocabulary;
  s.trained_context = config.trained_context;
  for (const gguf::Tensor& t : file.tensors()) s.parameters += t.elements();
  return model;
}

}  // namespace honeycrisp::model
