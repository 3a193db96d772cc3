// The trie walk and the order of matches.
#include "text/tokenizer/special_matcher.h"

#include "base/log.h"

#include <algorithm>

namespace honeycrisp::text {
namespace {

/// Every position of a text walks at most this far; published special tokens stay below 200 bytes.
constexpr size_t kLongestSpecial = 1024;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

SpecialMatcher::SpecialMatcher(const Vocabulary& vocabulary, std::span<const TokenId> strips_right)
    : needs_trust_(vocabulary.size()), strips_right_(vocabulary.size()) {
  roots_.fill(-1);
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const TokenType type = vocabulary.type(TokenId(i));
    needs_trust_[i] = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!needs_trust_[i] && type != TokenType::kUserDefined) continue;
    const std::string_view text = vocabulary.text(TokenId(i));
    if (text.size() <= kLongestSpecial)
      insert(text, TokenId(i));
    else
      log_warning("special token {} has {} bytes, more than {}: it is not recognised in text", i, text.size(),
                  kLongestSpecial);
  }
  for (const TokenId id : strips_right) strips_right_[size_t(id)] = true;
}

int32_t SpecialMatcher::child_of(int32_t node, uint8_t byte) const {
  int32_t child = nodes_[size_t(node)].child;
  while (child >= 0 && nodes_[size_t(child)].byte != byte) child = nodes_[size_t(child)].sibling;
  return child;
}

void SpecialMatcher::insert(std::string_view token_text, TokenId id) {
  const auto add_node = [this](uint8_t byte, int32_t sibling) {
    nodes_.push_back({-1, sibling, byte, kNoToken});
    return int32_t(nodes_.size() - 1);
  };
  int32_t& root = roots_[static_cast<unsigned char>(token_text[0])];
  if (root < 0) root = add_node(static_cast<unsigned char>(token_text[0]), -1);
  int32_t node = root;
  for (const char c : token_text.substr(1)) {
    int32_t child = child_of(node, static_cast<unsigned char>(c));
    if (child < 0) {
      child = add_node(static_cast<unsigned char>(c), nodes_[size_t(node)].child);
      nodes_[size_t(node)].child = child;
    }
    node = child;
  }
  nodes_[size_t(node)].token = id;
}

/// One run of cut(). Every position offers its longest token; when the best offer of all is blocked by a token that was
/// taken before it, its position offers the longest that still fits.
class SpecialMatcher::Cutter {
 public:
  Cutter(const SpecialMatcher& matcher, std::string_view text, std::span<const TrustedRange> trusted)
      : matcher_(matcher), text_(text), trusted_(trusted), taken_(text.size()) {}

  std::vector<Fragment> run() {
    size_t range = 0;
    for (size_t at = 0; at < text_.size(); ++at) {
      while (range < trusted_.size() && trusted_[range].end <= at) ++range;
      offer(at, range < trusted_.size() && trusted_[range].begin <= at ? trusted_[range].end : 0);
    }
    std::make_heap(offers_.begin(), offers_.end(), later);
    while (!offers_.empty()) {
      std::pop_heap(offers_.begin(), offers_.end(), later);
      const Match match = offers_.back();
      offers_.pop_back();
      if (taken_[match.begin]) continue;
      if (is_free(match)) {
        take(match);
      } else if (offer(match.begin, trust_end(match.begin))) {
        std::push_heap(offers_.begin(), offers_.end(), later);
      }
    }
    return fragments();
  }

 private:
  static bool later(const Match& a, const Match& b) {
    if (a.length != b.length) return a.length < b.length;
    return a.token != b.token ? a.token > b.token : a.begin > b.begin;
  }

  /// Adds the longest token at `begin` that runs into nothing taken; control tokens must end by `trust`.
  bool offer(size_t begin, size_t trust) {
    Match best{begin, 0, kNoToken};
    int32_t node = matcher_.roots_[static_cast<unsigned char>(text_[begin])];
    for (size_t end = begin + 1; node >= 0 && !taken_[end - 1]; ++end) {
      const TokenId token = matcher_.nodes_[size_t(node)].token;
      if (token != kNoToken && (!matcher_.needs_trust_[size_t(token)] || end <= trust)) {
        best.length = uint32_t(end - begin);
        best.token = token;
      }
      if (end == text_.size()) break;
      node = matcher_.child_of(node, static_cast<unsigned char>(text_[end]));
    }
    if (best.token == kNoToken) return false;
    offers_.push_back(best);
    return true;
  }

  size_t trust_end(size_t at) const {
    const auto after = std::upper_bound(trusted_.begin(), trusted_.end(), at,
                                        [](size_t position, const TrustedRange& r) { return position < r.end; });
    return after != trusted_.end() && after->begin <= at ? after->end : 0;
  }

  bool is_free(const Match& match) const {
    for (size_t i = match.begin; i < match.begin + match.length; ++i) {
      if (taken_[i]) return false;
    }
    return true;
  }

  void take(const Match& match) {
    size_t end = match.begin + match.length;
    for (size_t i = match.begin; i < end; ++i) taken_[i] = true;
    if (matcher_.strips_right_[size_t(match.token)]) {
      for (; end < text_.size() && !taken_[end] && is_space(text_[end]); ++end) taken_[end] = true;
    }
    chosen_.push_back({match.token, match.begin, end});
  }

  std::vector<Fragment> fragments() {
    std::sort(chosen_.begin(), chosen_.end(), [](const Fragment& a, const Fragment& b) { return a.begin < b.begin; });
    std::vector<Fragment> result;
    result.reserve(2 * chosen_.size() + 1);
    size_t at = 0;
    for (const Fragment& special : chosen_) {
      if (at < special.begin) result.push_back({kNoToken, at, special.begin});
      result.push_back(special);
      at = special.end;
    }
    if (at < text_.size()) result.push_back({kNoToken, at, text_.size()});
    return result;
  }

  const SpecialMatcher& matcher_;
  std::string_view text_;
  std::span<const TrustedRange> trusted_;
  std::vector<bool> taken_;       // [bytes of the text]
  std::vector<Match> offers_;     // a heap, at most one per position
  std::vector<Fragment> chosen_;  // end includes the white space that was swallowed
};

std::vector<Fragment> SpecialMatcher::cut(std::string_view text, std::span<const TrustedRange> trusted) const {
  return Cutter(*this, text, trusted).run();
}

}  // namespace honeycrisp::text
