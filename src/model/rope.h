// Rotary tables from a file's `rope.*` keys and rope_freqs.weight. One place for every family, so that a scaling that
// one family reads cannot be forgotten by another.
#pragma once

#include "base/result.h"
#include "model/builder.h"
#include "model/config.h"
#include "program/program.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::model {

/// `rope.scaling.*`, checked. An unknown type is an error.
struct RopeScaling {
  enum class Kind { kNone, kLinear } kind = Kind::kNone;
  double factor = 1;  // positions are divided by it
};
Result<RopeScaling> read_rope_scaling(const HyperParameters& hyper);

struct RopeShape {
  bool interleaved = false;  // fixed by the architecture
  uint32_t rotated = 0;      // lanes, the first of each head; even
  double base = 10000;
};

/// inverse_frequency[i] = base^(−2i / rotated) / (scaling factor · divisors[i]); divisors [rotated / 2] may be empty
/// (Llama 3's rope_freqs).
program::Rope make_rope(const RopeShape& shape, const RopeScaling& scaling, std::span<const float> divisors = {});

/// `rope.dimension_count` (default: the whole head), checked: even, within the head.
Result<uint32_t> read_rotated(const HyperParameters& hyper, uint32_t head_dim,
                              std::string_view suffix = "rope.dimension_count");

/// rope_freqs.weight [pairs]: divisors above 0 of the frequencies.
Result<std::vector<float>> read_divisors(Builder& builder, uint32_t pairs);

}  // namespace honeycrisp::model
