// PCRE2 behind the splitter, and the one cut that is no pattern.
#include "text/tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/utf8.h"

#include <algorithm>
#include <pcre2.h>
#include <string>

namespace honeycrisp::text {
namespace {

struct FreePcre2 {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, FreePcre2>;

constexpr size_t kJitStackStart = 32 * 1024, kJitStackLimit = 1024 * 1024;  // bytes; on the heap, not the thread's
constexpr uint32_t kDepthLimit = 10000;
// Backtracking per byte of text that the linear patterns of the table never need; it ends a match that runs away.
constexpr uint64_t kMatchLimitBase = 10'000'000, kMatchLimitPerByte = 16;

/// Unicode's White_Space, spelt out: PCRE2's own \s adds U+180E, which is no white space for the tokenizers' engines.
constexpr std::string_view kWhiteSpace =
    "\\t-\\r\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

std::string expand_white_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c != '\\' || at + 1 == pattern.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
      continue;
    }
    const char escaped = pattern[++at];
    if (escaped == 's' && in_class) {
      out += kWhiteSpace;
    } else if (escaped == 's' || escaped == 'S') {
      out.append(escaped == 's' ? "[" : "[^").append(kWhiteSpace).append("]");
    } else {
      out.append({c, escaped});
    }
  }
  return out;
}

std::string message_of(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

Result<Owned<pcre2_code>> compile(std::string_view pattern) {
  const std::string expanded = expand_white_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Owned<pcre2_code> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expanded.data()), expanded.size(),
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr));
  if (!code) return fail(ErrorCode::kInternal, "pre-tokenizer pattern, at {}: {}", offset, message_of(error));
  // Fails where memory cannot be made executable; the interpreter then does the same, more slowly.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

/// What one call of split() needs besides the patterns.
struct MatchState {
  Owned<pcre2_match_data> data{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_match_context> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_jit_stack> stack{pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr)};

  Result<void> prepare(size_t text_bytes) {
    if (!data || !context || !stack) return fail(ErrorCode::kOutOfMemory, "no memory to tokenize text");
    const uint64_t limit = kMatchLimitBase + kMatchLimitPerByte * text_bytes;
    pcre2_set_match_limit(context.get(), uint32_t(std::min<uint64_t>(limit, ~uint32_t{0})));
    pcre2_set_depth_limit(context.get(), kDepthLimit);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    return {};
  }
};

/// Appends the ends of groups of three characters of `run`, the first group being the short one.
void split_threes(std::string_view run, uint32_t base, std::vector<uint32_t>& ends) {
  std::vector<uint32_t> digit_ends;
  for (size_t at = 0; at < run.size();) digit_ends.push_back(base + uint32_t(at += decode_utf8(run, at).length));
  const size_t n = digit_ends.size();
  for (size_t group_end = n % 3 == 0 ? 3 : n % 3; group_end <= n; group_end += 3) {
    ends.push_back(digit_ends[group_end - 1]);
  }
}

/// Appends the ends, shifted by `base`, of the matches in `chunk` and of what lies between them. `threes`: each match
/// is cut further, into groups of three.
Result<void> split_by_pattern(const pcre2_code* code, bool threes, MatchState& state, std::string_view chunk,
                              uint32_t base, std::vector<uint32_t>& ends) {
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(state.data.get());
  size_t done = 0, from = 0;
  while (from < chunk.size()) {
    const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(chunk.data()), chunk.size(), from, PCRE2_NO_UTF_CHECK,
                               state.data.get(), state.context.get());
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) return fail(ErrorCode::kInvalidInput, "the text cannot be tokenized: {}", message_of(rc));
    if (span[0] > done) ends.push_back(base + uint32_t(span[0]));
    if (threes) {
      split_threes(chunk.substr(span[0], span[1] - span[0]), base + uint32_t(span[0]), ends);
    } else {
      ends.push_back(base + uint32_t(span[1]));
    }
    done = from = span[1];  // no pattern of the table matches the empty string
  }
  if (done < chunk.size()) ends.push_back(base + uint32_t(chunk.size()));
  return {};
}

/// The ends of well-formed and malformed stretches in turn.
std::vector<uint32_t> split_by_validity(std::string_view text) {
  std::vector<uint32_t> ends;
  bool last_valid = true;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (at > 0 && c.valid != last_valid) ends.push_back(uint32_t(at));
    last_valid = c.valid;
    at += c.length;
  }
  if (!text.empty()) ends.push_back(uint32_t(text.size()));
  return ends;
}

}  // namespace

/// A compiled pattern; for kThreesFromRight that of a run of digits, which is then cut by hand.
struct PreTokenizer::Pattern {
  Owned<pcre2_code> code;
  bool threes_from_right = false;
};

Result<PreTokenizer> PreTokenizer::create(const PreTokenizerRule& rule) {
  PreTokenizer result;
  for (const std::string_view pattern : rule.patterns) {
    auto compiled = std::make_shared<Pattern>();
    compiled->threes_from_right = pattern == kThreesFromRight;
    HC_ASSIGN(compiled->code, compile(compiled->threes_from_right ? "\\p{N}+" : pattern));
    result.patterns_.push_back(std::move(compiled));
  }
  return result;
}

Result<std::vector<uint32_t>> PreTokenizer::split(std::string_view text) const {
  MatchState state;
  HC_TRY(state.prepare(text.size()));
  std::vector<uint32_t> chunks = split_by_validity(text), ends;
  for (const auto& pattern : patterns_) {
    ends.clear();
    uint32_t begin = 0;
    for (const uint32_t end : chunks) {
      if (decode_utf8(text, begin).valid) {
        const std::string_view chunk = text.substr(begin, end - begin);
        HC_TRY(split_by_pattern(pattern->code.get(), pattern->threes_from_right, state, chunk, begin, ends));
      } else {
        ends.push_back(end);
      }
      begin = end;
    }
    std::swap(chunks, ends);
  }
  return chunks;
}

}  // namespace honeycrisp::text
