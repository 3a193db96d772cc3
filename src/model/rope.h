// Rotary tables from a file's `rope.*` keys, rope_freqs.weight and rope_factors_*.weight. One place for every family,
// so that a scaling that one family reads cannot be forgotten by another.
//
// What the kinds mean, and where each comes from:
//   linear    positions divided by rope.scaling.factor
//   yarn      arXiv:2309.00071: frequencies that turn often stay, slow ones are divided by the factor, those between
//             are blended; cos and sin times 0.1·ln(factor) + 1 unless the file gives the magnitude
//   longrope  arXiv:2402.13753: a divisor per frequency from one of two tensors, chosen once by the context asked for.
//             Phi-3's files do not name the kind: the tensors do
//   factors   a divisor per frequency from rope_freqs.weight, with any kind but longrope. Llama 3's bands are stored
//             this way, and Gemma 4's proportional rotation (a divisor of 1e30 leaves a pair unrotated)
// Where the sources disagree, `transformers` is followed: it rounds YaRN's range outwards (not for gpt-oss), and takes
// attention_factor (yarn_attn_factor in files) as the whole magnitude.
#pragma once

#include "base/result.h"
#include "model/families/families.h"
#include "program/program.h"

#include <string_view>
#include <vector>

namespace honeycrisp::model {

/// A rotation in numbers.
struct RopeTable {
  bool interleaved = false;  // fixed by the architecture
  uint32_t rotated = 0;      // lanes, the first of each head; even
  double base = 10000;
  double factor = 1;                 // frequencies are divided by it: all, or with YaRN the slow ones
  std::vector<float> divisors = {};  // [rotated / 2] of the frequencies, or empty
  double magnitude = 1;              // of cos and sin
  struct Yarn {
    double original_context = 0;           // positions
    double beta_fast = 32, beta_slow = 1;  // turns over the original context, between which frequencies are blended
    double extrapolation = 1;              // share of the unscaled frequencies
    bool rounded = true;                   // the range of blended frequencies ends on whole indices
  };
  std::optional<Yarn> yarn = {};
};
/// Fills in all but the description.
program::Rope make_rope(const RopeTable& table);

/// Which keys a rotation is read from, and what the architecture fixes.
struct RopeSource {
  bool interleaved = false;
  uint32_t head_dim = 0;
  const char* rotated_key = "rope.dimension_count";  // default: the whole head
  const char* base_key = "rope.freq_base";
  double default_base = 10000;
  bool scaled = true;          // false: no scaling and no divisors, whatever the file has (sliding layers of Gemma)
  bool needs_factors = false;  // rope_freqs.weight
  bool yarn_rounded = true;
};
/// Errors name the key or tensor: an unknown kind, an odd or too large dimension, factors of another length or not
/// above 0, keys that contradict each other. Notes say which scaling applies.
Result<program::Rope> read_rope(const FamilyInput& in, const RopeSource& source);

}  // namespace honeycrisp::model
