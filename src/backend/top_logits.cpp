#include "backend/top_logits.h"

#include <algorithm>
#include <functional>

namespace honeycrisp::backend {
namespace {

constexpr size_t kBlock = 32;  // logits that are passed over together

/// Orders logits from −infinity up, −0 below +0, NaN of either sign above infinity. In whole numbers, as comparisons of
/// floats may trap and compilers leave them one by one.
constexpr int32_t order_of(float logit) {
  const auto bits = std::bit_cast<int32_t>(logit);
  return int32_t(uint32_t(bits ^ (bits >> 31 & INT32_MAX)) - 0x007fffffu);
}
constexpr int32_t kHighest = order_of(std::numeric_limits<float>::max());
static_assert(order_of(-std::numeric_limits<float>::infinity()) == INT32_MIN);
static_assert(order_of(-std::numeric_limits<float>::quiet_NaN()) > order_of(std::numeric_limits<float>::infinity()));

bool any_above(std::span<const float, kBlock> block, int32_t order) {
  int32_t any = 0;
  for (const float x : block) any |= order_of(x) > order ? 1 : 0;
  return any != 0;
}

/// The candidates for the n best ranks: never fewer than those.
class Candidates {
 public:
  explicit Candidates(size_t n) : n_(n) {}

  void add(uint64_t rank) {
    if (rank < worst_) return;
    ranks_[n_found_++] = rank;
    if (n_found_ == ranks_.size()) reduce();
  }
  /// Of the last of the n best so far: lower ones are out. 0: not known yet.
  uint64_t worst() const { return worst_; }
  std::span<const uint64_t> in_order() {
    reduce();
    std::sort(ranks_.begin(), ranks_.begin() + ptrdiff_t(n_), std::greater<>());
    return std::span(ranks_).first(n_);
  }

 private:
  // Of many candidates at a time, so that ascending logits cost no more than others.
  void reduce() {
    const auto last = ranks_.begin() + ptrdiff_t(n_ - 1);
    std::nth_element(ranks_.begin(), last, ranks_.begin() + ptrdiff_t(n_found_), std::greater<>());
    n_found_ = n_;
    worst_ = *last;
  }

  size_t n_, n_found_ = 0;
  uint64_t worst_ = 0;
  std::array<uint64_t, 2 * size_t{kMostTopLogits}> ranks_;
};

}  // namespace

TopLogits top_logits(std::span<const float> logits, uint32_t n) {
  TopLogits top;
  top.n = uint32_t(std::min<size_t>({n, kMostTopLogits, logits.size()}));
  if (top.n == 0) return top;
  Candidates candidates(top.n);
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::span<const float> block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    if (candidates.worst() != 0 && block.size() == kBlock) {
      // Of equal logits the later ones are out. NaN and +infinity are looked at in any case: they are counted.
      const int32_t worst = std::min(order_of(logits[token_of(candidates.worst())]), kHighest);
      if (!any_above(block.first<kBlock>(), worst)) continue;
    }
    for (size_t i = 0; i < block.size(); ++i) {
      top.n_unusable += is_unusable(block[i]) ? 1 : 0;
      candidates.add(rank_of(block[i], uint32_t(begin + i)));
    }
  }
  for (uint32_t i = 0; const uint64_t rank : candidates.in_order()) {
    top.tokens[i] = int32_t(token_of(rank));
    top.logits[i++] = logits[token_of(rank)];
  }
  return top;
}

}  // namespace honeycrisp::backend
