// From a GGUF file to a Program: configuration read and checked, tensors found and checked, ops written down.
// One file per family under families/, one line each in the registry. Knows nothing of backends, text or sampling.
#pragma once

#include "base/result.h"
#include "gguf/file.h"
#include "program/program.h"

#include <string>
#include <vector>

namespace honeycrisp::model {

/// What every family has in common, for people and for the engine.
struct ModelSummary {
  std::string architecture;  // general.architecture
  std::string name;          // general.name, may be empty
  uint32_t n_layers = 0;
  uint32_t width = 0;              // embedding length
  uint32_t vocabulary = 0;         // rows of the embedding table: ids that can be computed
  uint32_t trained_context = 0;    // positions
  uint64_t parameters = 0;         // weights, a tied embedding once
  std::vector<std::string> notes;  // decisions worth telling: rope scaling used, tensors ignored, …
};

struct Model {
  ModelSummary summary;
  program::Program program;  // checked; points into the file's bytes, which must stay open
};

/// Most positions that are planned for when nobody asks for a number of them.
inline constexpr uint32_t kDefaultContext = 8192;
/// The context asked for, or where that is 0 the default for a model trained on `trained` positions (0: unknown).
uint32_t resolve_context(uint32_t asked, uint32_t trained);

struct LoadOptions {
  uint32_t context = 0;  // positions that will be asked for, 0 as above; chooses long-rope factors
};

/// Errors: unknown architecture (lists the known ones), a missing or contradicting key or tensor (by name), an
/// unsupported feature.
Result<Model> load(const gguf::File& file, const LoadOptions& options = {});

/// Supported values of general.architecture, sorted.
std::vector<std::string> architectures();

}  // namespace honeycrisp::model
