// What `inspect` knows about a file, gathered once and shown as text or as JSON. Opens files that cannot be run: what
// is missing then is said in `program_error`.
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "gguf/file.h"
#include "model/model.h"
#include <honeycrisp/engine.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace honeycrisp::cli {

struct InspectOptions {
  std::string backend = "auto";
  KvType kv_type = KvType::kF16;
  bool fast_activations = false;
  uint32_t context = 0;  // 0: min(the model's own, 8192)
  uint32_t threads = 0;
};

/// Tensors of one format.
struct FormatShare {
  quant::Format format = quant::Format::kF32;
  uint64_t tensors = 0, elements = 0, bytes = 0;
};

/// Bytes of memory that running takes.
struct MemoryNeed {
  uint32_t context = 0;
  uint64_t weights = 0;
  uint64_t cache = 0;        // KV pages of one full session
  uint64_t states = 0;       // recurrent states of one session, checkpoints included
  uint64_t activations = 0;  // buffers of a chunk of the prompt, with the backend's scratch where it tells
  uint64_t total() const { return weights + cache + states + activations; }
};

/// What one more token takes.
struct TokenCost {
  uint64_t weights = 0;                  // bytes read: of a mixture the chosen experts only
  uint64_t cache = 0;                    // bytes that stay: layers without a window
  uint64_t state = 0;                    // bytes of recurrent state, read and written
  uint32_t experts = 0, of_experts = 0;  // chosen and all, of the first mixture; 0: none
};

/// Launches and barriers of a step. On a CPU a launch is a pass of the thread pool.
struct ProgramCost {
  uint64_t launches = 0, barriers = 0, weight_bytes = 0;
  double launches_per_layer = 0;
};

struct InspectReport {
  std::string path;
  gguf::File file;                   // keeps the bytes that everything below points into
  std::vector<FormatShare> formats;  // most bytes first
  uint64_t elements = 0, tensor_bytes = 0;
  double bits_per_weight = 0;

  std::optional<model::Model> model;
  std::optional<backend::Plan> plan;
  std::string program_error;  // why there is no model, or no plan
  std::string passed_over;    // which better backends cannot run it, and why
  std::string no_room;        // why this machine's memory does not hold it, or its GPU's not well
  MemoryNeed memory;          // all but weights 0 without a model
  TokenCost token;            // of `model`
  ProgramCost cost;           // of `plan`
};

Result<InspectReport> inspect_file(const std::string& path, const InspectOptions& options);

/// For people: at most `width` columns where that is possible. Everything from the file is escaped.
std::string report_text(const InspectReport& report, bool with_tensors, bool with_program);
/// Everything, as one JSON object.
std::string report_json(const InspectReport& report);

}  // namespace honeycrisp::cli
