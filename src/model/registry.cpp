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

constexpr Family kFamilies[] = {
    {"gemma2", build_gemma2},
    {"gemma3", build_gemma3},
    {"gemma4", build_gemma4, true},
    {"gpt-oss", build_gpt_oss, true},
    {"granite", build_granite},
    {"llama", build_llama},
    {"mistral3", build_mistral3},
    {"olmo2", build_olmo2},
    {"phi3", build_phi3},
    {"qwen2", build_qwen2},
    {"qwen2moe", build_qwen2moe, true},
    {"qwen3", build_qwen3},
    {"qwen3moe", build_qwen3moe, true},
    {"qwen3next", build_qwen3next, true},
    {"qwen35", build_qwen35},
    {"qwen35moe", build_qwen35moe, true},
    {"smollm3", build_smollm3},
};

}  // namespace

std::vector<std::string> architectures() {
  std::vector<std::string> names;
  for (const Family& f : kFamilies) names.emplace_back(f.architecture);
  std::sort(names.begin(), names.end());
  return names;
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
  HC_TRY(family->build({hyper, config, options, builder, model.summary.notes}));
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
