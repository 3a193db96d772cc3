// Writes a Program from a file's tensors: finds them by name, checks their shapes against the configuration, and
// remembers which were used so that nothing is left out silently.
#pragma once

#include "base/result.h"
#include "gguf/file.h"
#include "program/program.h"

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace honeycrisp::model {

class Builder {
 public:
  Builder(const gguf::File& file, uint32_t n_layers, uint32_t vocabulary);

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  /// The same of a tensor that every layer asked about has, or none: finish() refuses a file where only some do.
  bool has_in_layers(const std::string& name);

  /// The whole two-dimensional tensor as a matrix of [rows][cols]. Error: missing, another shape, or a type that
  /// cannot be a weight.
  Result<program::Matrix> matrix(const std::string& name, uint64_t cols, uint64_t rows);
  /// The whole three-dimensional tensor, [slices][rows][cols].
  Result<program::Matrix> expert_matrices(const std::string& name, uint64_t cols, uint64_t rows, uint64_t slices);
  /// The values of a small tensor of [rows][size] as f32 (F32, F16 and BF16 are accepted).
  Result<program::VectorId> vector(const std::string& name, uint64_t size, uint64_t rows = 1);
  /// The same values, for the family itself (rope factors, scalar scales).
  Result<std::vector<float>> values(const std::string& name, uint64_t size, uint64_t rows = 1);

  program::BufferId buffer(std::string name, uint64_t width);
  program::Slice whole(program::BufferId buffer) const;
  program::RopeId rope(program::Rope rope);
  program::CacheId cache(program::CacheLayer layer);
  program::StateId state(program::StateLayer layer);
  /// Values that the family computed itself (a scaled norm weight), under a name of its own.
  program::VectorId computed_vector(std::string name, std::vector<float> values);
  /// Appends an op; `layer` as in program::Step.
  void step(std::string label, std::optional<uint32_t> layer, program::Op op);

  /// Checks the program, and notes tensors of the file that nothing uses. Error: also a scale of weights that nothing
  /// multiplies in, and a tensor that only some layers have.
  Result<program::Program> finish(std::vector<std::string>& notes) &&;

 private:
  Result<program::Matrix> weight(const std::string& name, uint64_t cols, uint64_t rows, uint64_t slices);

  const gguf::File& file_;
  program::Program program_;
  std::unordered_map<std::string, program::WeightId> weights_;
  std::unordered_map<std::string, program::VectorId> vectors_;
  std::unordered_set<std::string> used_;
  struct Answers {
    std::string present, absent;  // the first tensor of each, or empty
  };
  std::map<std::string, Answers> answers_;  // of has_in_layers(), by the name without its layer
};

}  // namespace honeycrisp::model
