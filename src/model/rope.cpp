#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {

Result<RopeScaling> read_rope_scaling(const HyperParameters& hyper) {
  RopeScaling scaling;
  // Old files have only the factor, under one of two names, and mean linear.
  HC_ASSIGN(const double legacy, hyper.get_float("rope.scale_linear", 0, 0, 1e9));
  HC_ASSIGN(scaling.factor, hyper.get_float("rope.scaling.factor", legacy, 0, 1e9));
  if (scaling.factor == 0) scaling.factor = 1;
  HC_ASSIGN(const std::string type, hyper.get_string("rope.scaling.type", scaling.factor == 1 ? "none" : "linear"));
  if (type == "none" || type.empty()) {
    scaling.factor = 1;
  } else if (type == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
  } else {
    return unsupported("{}: '{}' is not supported (none and linear are)", hyper.key("rope.scaling.type"), type);
  }
  return scaling;
}

program::Rope make_rope(const RopeShape& shape, const RopeScaling& scaling, std::span<const float> divisors) {
  program::Rope rope;
  rope.interleaved = shape.interleaved;
  const uint32_t pairs = shape.rotated / 2;
  rope.pair_distance = pairs;
  rope.inverse_frequency.resize(pairs);
  for (uint32_t i = 0; i < pairs; ++i) {
    const double divisor = scaling.factor * (divisors.empty() ? 1.0 : double(divisors[i]));
    rope.inverse_frequency[i] = std::pow(shape.base, -2.0 * i / shape.rotated) / divisor;
  }
  rope.kind = fmt::format("base {:g}", shape.base);
  if (scaling.kind == RopeScaling::Kind::kLinear) rope.kind += fmt::format(", linear ×{:g}", scaling.factor);
  if (!divisors.empty()) rope.kind += ", frequency factors";
  return rope;
}

Result<uint32_t> read_rotated(const HyperParameters& hyper, uint32_t head_dim, std::string_view suffix) {
  HC_ASSIGN(const uint32_t rotated, hyper.get(suffix, head_dim, 2, head_dim));
  if (rotated % 2 != 0) return invalid("{}: {} is odd", hyper.key(suffix), rotated);
  return rotated;
}

Result<std::vector<float>> read_divisors(Builder& builder, uint32_t pairs) {
  HC_ASSIGN(auto divisors, builder.values("rope_freqs.weight", pairs));
  for (float d : divisors)
    if (!(d > 0)) return invalid("tensor 'rope_freqs.weight' holds {}, expected divisors above 0", d);
  return divisors;
}

}  // namespace honeycrisp::model
