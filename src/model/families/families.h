// What a family file provides. Adding a family: one file here, one line in ../registry.cpp (docs/adding-a-model.md).
#pragma once

#include "base/result.h"
#include "model/builder.h"
#include "model/config.h"
#include "model/model.h"

namespace honeycrisp::model {

/// Everything that a family needs to write its program down.
struct FamilyInput {
  const HyperParameters& hyper;
  const Config& config;
  const LoadOptions& options;  // with the context resolved
  Builder& builder;
  std::vector<std::string>& notes;
};
using FamilyFunction = Result<void> (*)(const FamilyInput&);

Result<void> build_gemma2(const FamilyInput& in);
Result<void> build_gemma3(const FamilyInput& in);
Result<void> build_gemma4(const FamilyInput& in);
Result<void> build_gpt_oss(const FamilyInput& in);
Result<void> build_granite(const FamilyInput& in);
Result<void> build_llama(const FamilyInput& in);
Result<void> build_mistral3(const FamilyInput& in);
Result<void> build_olmo2(const FamilyInput& in);
Result<void> build_phi3(const FamilyInput& in);
Result<void> build_qwen2(const FamilyInput& in);
Result<void> build_qwen2moe(const FamilyInput& in);
Result<void> build_qwen3(const FamilyInput& in);
Result<void> build_qwen35(const FamilyInput& in);
Result<void> build_qwen35moe(const FamilyInput& in);
Result<void> build_qwen3moe(const FamilyInput& in);
Result<void> build_qwen3next(const FamilyInput& in);
Result<void> build_smollm3(const FamilyInput& in);

}  // namespace honeycrisp::model
