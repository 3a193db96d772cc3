// Models of published geometries as sparse files: a header, and weights that are holes, which nothing here reads. The
// figures are those of each model's published configuration; the types are those of files of the Q4_0 and Q4_K_M kinds,
// with every layer's value and down projection in Q6_K in the latter.
#pragma once

#include <string>

namespace honeycrisp::backend::metal::testing {

/// The dense decoders that are one architecture but for these figures.
struct Dense {
  const char* architecture;
  unsigned layers, width, hidden, heads, kv_heads, head, vocabulary;
  bool biases = false, head_norms = false, tied = true, k_quants = true;
};

void write_dense(const std::string& path, const Dense& dense);
/// google/gemma-4-31B-it: post-norms, windows, layers whose value is their key.
void write_gemma4_31b(const std::string& path);
/// Qwen/Qwen3-30B-A3B: 8 of 128 experts.
void write_qwen3_30b_a3b(const std::string& path);

}  // namespace honeycrisp::backend::metal::testing
