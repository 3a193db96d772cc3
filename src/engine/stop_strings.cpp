// See stop_strings.h.
#include "engine/stop_strings.h"

#include "base/utf8.h"

#include <algorithm>

namespace honeycrisp::engine {
namespace {

constexpr size_t kMaxStrings = 64;
constexpr size_t kMaxBytes = 4096;  // of one string: it is also what may be held back

}  // namespace

Result<StopStrings> StopStrings::create(std::span<const std::string> strings) {
  if (strings.size() > kMaxStrings) return invalid("{} stop strings are more than {}", strings.size(), kMaxStrings);
  StopStrings result;
  for (const std::string& pattern : strings) {
    if (pattern.empty()) return invalid("a stop string is empty");
    if (pattern.size() > kMaxBytes)
      return invalid("a stop string of {} bytes is longer than {}", pattern.size(), kMaxBytes);
    if (!is_valid_utf8(pattern)) return invalid("a stop string is not valid UTF-8");
    Matcher matcher{.pattern = pattern, .fallback = std::vector<uint32_t>(pattern.size(), 0)};
    for (uint32_t i = 1, border = 0; i < pattern.size(); ++i) {
      while (border > 0 && pattern[i] != pattern[border]) border = matcher.fallback[border - 1];
      if (pattern[i] == pattern[border]) ++border;
      matcher.fallback[i] = border;
    }
    result.matchers_.push_back(std::move(matcher));
  }
  // Longest first: of two that end at the same byte the longer one is found.
  std::sort(result.matchers_.begin(), result.matchers_.end(),
            [](const Matcher& a, const Matcher& b) { return a.pattern.size() > b.pattern.size(); });
  return result;
}

void StopStrings::Matcher::advance(char c) {
  while (state > 0 && pattern[state] != c) state = fallback[state - 1];
  if (pattern[state] == c) ++state;
}

std::string StopStrings::push(std::string_view text) {
  if (!matched_.empty()) return {};
  if (matchers_.empty()) return std::string(text);
  for (const char c : text) {
    held_ += c;
    for (Matcher& matcher : matchers_) {
      matcher.advance(c);
      if (matcher.state < matcher.pattern.size()) continue;
      matched_ = matcher.pattern;
      held_.resize(held_.size() - matched_.size());
      return std::exchange(held_, {});
    }
  }
  size_t doubtful = 0;
  for (const Matcher& matcher : matchers_) doubtful = std::max<size_t>(doubtful, matcher.state);
  std::string certain = held_.substr(0, held_.size() - doubtful);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace honeycrisp::engine
