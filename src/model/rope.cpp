#include "model/rope.h"

#include "base/text_escape.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace honeycrisp::model {
namespace {

constexpr const char* kFreqs = "rope_freqs.weight";
constexpr const char* kLongFactors = "rope_factors_long.weight";
constexpr const char* kShortFactors = "rope_factors_short.weight";

constexpr const char* kOriginalContext = "rope.scaling.original_context_length";

constexpr double kMaxFactor = 1e9;
constexpr double kMinMagnitude = 1e-3, kMaxMagnitude = 1e3;

// YaRN's default magnitude.
double log_magnitude(double factor, double multiplier) {
  return factor <= 1 ? 1 : 0.1 * multiplier * std::log(factor) + 1;
}

// The share of frequency i that stays unscaled: 1 up to the first index of the blended range, 0 after the last.
class YarnBlend {
 public:
  YarnBlend(const RopeTable& table, const RopeTable::Yarn& yarn) : extrapolation_(yarn.extrapolation) {
    // The index whose frequency makes so many turns over the original context.
    const auto index = [&](double turns) {
      return table.rotated * std::log(yarn.original_context / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(table.base));
    };
    first_ = index(yarn.beta_fast);
    last_ = index(yarn.beta_slow);
    if (yarn.rounded) {
      first_ = std::floor(first_);
      last_ = std::ceil(last_);
    }
    first_ = std::max(first_, 0.0);
    last_ = std::min(last_, double(table.rotated) - 1);
    if (first_ == last_) last_ += 0.001;
  }
  double unscaled_share(uint32_t i) const {
    return (1 - std::clamp((i - first_) / (last_ - first_), 0.0, 1.0)) * extrapolation_;
  }

 private:
  double first_ = 0, last_ = 0, extrapolation_ = 1;
};

Result<std::vector<float>> read_divisors(Builder& builder, const char* name, uint32_t pairs) {
  HC_ASSIGN(auto divisors, builder.values(name, pairs));
  for (const float d : divisors)
    if (!(d > 0)) return invalid("tensor '{}' holds {}, expected divisors above 0", name, d);
  return divisors;
}

// Fills a RopeTable from a file, and describes what it found.
class Reader {
 public:
  Reader(const FamilyInput& in, const RopeSource& source) : in_(in), hyper_(in.hyper), source_(source) {}

  Result<program::Rope> read() {
    table_.interleaved = source_.interleaved;
    HC_ASSIGN(table_.rotated, hyper_.get(source_.rotated_key, source_.head_dim, 2, source_.head_dim));
    if (table_.rotated % 2 != 0) return invalid("{}: {} is odd", hyper_.key(source_.rotated_key), table_.rotated);
    HC_ASSIGN(table_.base, hyper_.get_float(source_.base_key, source_.default_base, 1, 1e12));
    description_ = fmt::format("base {:g}", table_.base);
    if (source_.scaled) HC_TRY(scaling());
    program::Rope rope = make_rope(table_);
    rope.kind = description_;
    return rope;
  }

 private:
  Result<void> scaling() {
    // Old files have only the factor, under one of two names, and mean linear.
    HC_ASSIGN(const double legacy, hyper_.get_float("rope.scale_linear", 0, 0, kMaxFactor));
    HC_ASSIGN(double factor, hyper_.get_float("rope.scaling.factor", legacy, 0, kMaxFactor));
    if (factor == 0) factor = 1;  // not set
    if (factor < 1)
      return invalid("{}: {} would shrink the context (expected 1 or more)",
                     hyper_.key(hyper_.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear"),
                     factor);
    const bool long_rope = in_.builder.has(kLongFactors) || in_.builder.has(kShortFactors);
    HC_ASSIGN(const uint32_t original, hyper_.get(kOriginalContext, in_.config.trained_context, 1, 1u << 30));
    original_context_ = original;
    const char* implied = long_rope ? "longrope" : factor == 1 ? "none" : "linear";
    HC_ASSIGN(const std::string type, hyper_.get_string("rope.scaling.type", implied));

    struct Kind {
      const char* name;
      Result<void> (Reader::*read)(double factor);
    };
    static constexpr Kind kKinds[] = {{"none", &Reader::unscaled},
                                      {"linear", &Reader::linear},
                                      {"yarn", &Reader::yarn},
                                      {"longrope", &Reader::longrope}};
    const auto kind = std::ranges::find_if(kKinds, [&](const Kind& k) { return type == k.name; });
    if (kind == std::end(kKinds))
      return unsupported("{}: '{}' is not supported (none, linear, yarn and longrope are)",
                         hyper_.key("rope.scaling.type"), escape_for_display(type, 64));
    if (long_rope && type != "longrope")
      return invalid("{}: '{}', but the file has tensor '{}'", hyper_.key("rope.scaling.type"), type,
                     in_.builder.has(kLongFactors) ? kLongFactors : kShortFactors);
    HC_TRY((this->*kind->read)(factor));
    return frequency_factors(long_rope);
  }

  Result<void> unscaled(double) {
    HC_TRY(magnitude(1));
    return table_.magnitude == 1 ? Result<void>()
                                 : invalid("{}: {} without a scaling that uses it",
                                           hyper_.key("rope.scaling.attn_factor"), table_.magnitude);
  }

  Result<void> linear(double factor) {
    HC_TRY(unscaled(factor));
    table_.factor = factor;
    note(fmt::format("linear ×{:g}", factor));
    return {};
  }

  Result<void> yarn(double factor) {
    RopeTable::Yarn yarn{.rounded = source_.yarn_rounded};
    table_.factor = factor;
    yarn.original_context = original_context_;
    HC_ASSIGN(yarn.beta_fast, hyper_.get_float("rope.scaling.yarn_beta_fast", yarn.beta_fast, 1e-6, 1e6));
    HC_ASSIGN(yarn.beta_slow, hyper_.get_float("rope.scaling.yarn_beta_slow", yarn.beta_slow, 1e-6, 1e6));
    if (yarn.beta_fast < yarn.beta_slow)
      return invalid("{}: {} is below {} of {}", hyper_.key("rope.scaling.yarn_beta_fast"), yarn.beta_fast,
                     hyper_.key("rope.scaling.yarn_beta_slow"), yarn.beta_slow);
    if (!(table_.base > 1)) return invalid("{}: YaRN needs a base above 1", hyper_.key(source_.base_key));
    HC_ASSIGN(yarn.extrapolation, hyper_.get_float("rope.scaling.yarn_ext_factor", 1, -1, 1));
    if (yarn.extrapolation < 0) yarn.extrapolation = 1;  // negative: not given
    // The multiplier stands for the model's attention scale: the magnitude is what is left after dividing it out.
    HC_ASSIGN(const double multiplier, hyper_.get_float("rope.scaling.yarn_log_multiplier", 0, 0, 100));
    const double derived = log_magnitude(factor, 1) / (multiplier == 0 ? 1 : log_magnitude(factor, multiplier));
    HC_ASSIGN(const double given,
              hyper_.get_float("rope.scaling.yarn_attn_factor", derived, kMinMagnitude, kMaxMagnitude));
    HC_TRY(magnitude(given));
    table_.yarn = yarn;
    note(
        fmt::format("YaRN ×{:g} of {:g} positions, magnitude {:.4g}", factor, yarn.original_context, table_.magnitude));
    return {};
  }

  Result<void> longrope(double) {
    const uint32_t pairs = table_.rotated / 2;
    HC_ASSIGN(auto short_factors, read_divisors(in_.builder, kShortFactors, pairs));
    HC_ASSIGN(auto long_factors, read_divisors(in_.builder, kLongFactors, pairs));
    if (!hyper_.has(kOriginalContext)) return invalid("{}: the key is missing", hyper_.key(kOriginalContext));
    const double original = original_context_;
    const uint32_t trained = in_.config.trained_context;
    const uint32_t context = in_.options.context;
    const bool is_long = context > original;
    table_.divisors = is_long ? std::move(long_factors) : std::move(short_factors);
    const double extension = trained / original;
    HC_TRY(magnitude(extension <= 1 || original <= 1 ? 1 : std::sqrt(1 + std::log(extension) / std::log(original))));
    note(fmt::format("long rope, {} factors for a context of {} (originally {:g}), magnitude {:.4g}",
                     is_long ? "long" : "short", context, original, table_.magnitude));
    return {};
  }

  Result<void> frequency_factors(bool long_rope) {
    if (!source_.needs_factors && !in_.builder.has(kFreqs)) return {};
    if (long_rope) return invalid("tensors '{}' and '{}' contradict each other", kFreqs, kLongFactors);
    HC_ASSIGN(table_.divisors, read_divisors(in_.builder, kFreqs, table_.rotated / 2));
    description_ += ", frequency factors";
    return {};
  }

  // What the file says overrides what the kind implies.
  Result<void> magnitude(double implied) {
    HC_ASSIGN(table_.magnitude, hyper_.get_float("rope.scaling.attn_factor", implied, kMinMagnitude, kMaxMagnitude));
    return {};
  }

  void note(const std::string& text) {
    description_ += ", " + text;
    in_.notes.push_back("rope: " + text);
  }

  const FamilyInput& in_;
  const HyperParameters& hyper_;
  const RopeSource& source_;
  RopeTable table_;
  double original_context_ = 0;  // positions
  std::string description_;
};

}  // namespace

program::Rope make_rope(const RopeTable& table) {
  program::Rope rope;
  rope.interleaved = table.interleaved;
  rope.magnitude = table.magnitude;
  const uint32_t pairs = table.rotated / 2;
  rope.pair_distance = pairs;
  rope.inverse_frequency.resize(pairs);
  const std::optional<YarnBlend> blend = table.yarn ? std::optional<YarnBlend>({table, *table.yarn}) : std::nullopt;
  for (uint32_t i = 0; i < pairs; ++i) {
    const double divisor = table.divisors.empty() ? 1.0 : double(table.divisors[i]);
    const double unscaled = std::pow(table.base, -2.0 * i / table.rotated) / divisor, scaled = unscaled / table.factor;
    const double share = blend ? blend->unscaled_share(i) : 0;
    rope.inverse_frequency[i] = share * unscaled + (1 - share) * scaled;
  }
  return rope;
}

Result<program::Rope> read_rope(const FamilyInput& in, const RopeSource& source) { return Reader(in, source).read(); }

}  // namespace honeycrisp::model
