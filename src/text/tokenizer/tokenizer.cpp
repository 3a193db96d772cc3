// The public tokenizer: chooses the scheme of the file, cuts out special tokens, encodes what lies between them, and
// decodes. The schemes themselves lie beside this file.
#include "text/tokenizer.h"

#include "base/log.h"
#include "base/text_escape.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/special_matcher.h"
#include "text/tokenizer/special_tokens.h"
#include "text/tokenizer/spm.h"
#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <limits>

namespace honeycrisp::text {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 31;

enum class Scheme : uint8_t { kNone, kBpe, kSpm };

struct Kind {
  std::string_view name;  // tokenizer.ggml.model
  Scheme scheme;
  SpecialDefaults defaults;
  std::string_view pre;  // replaces tokenizer.ggml.pre, if not empty
};
constexpr Kind kKinds[] = {
    {"none", Scheme::kNone, {}, {}},
    {"no_vocab", Scheme::kNone, {}, {}},
    {"gpt2", Scheme::kBpe, {.bos = 11, .eos = 11}, {}},
    {"gemma4", Scheme::kBpe, {}, "gemma4"},
    {"llama", Scheme::kSpm, {.bos = 1, .eos = 2, .unk = 0, .add_bos = true}, {}},
};
/// Kinds that exist but are not implemented, with the names people know them by.
constexpr struct {
  std::string_view name, known_as;
} kUnsupportedKinds[] = {
    {"bert", "WordPiece"}, {"t5", "SentencePiece unigram"},      {"rwkv", "RWKV's greedy trie"},
    {"plamo2", "PLaMo 2"}, {"hybriddna", "BPE with DNA 6-mers"}, {"whitespace", "BPE over white space"},
};

Result<const Kind*> find_kind(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return &kind;
  }
  for (const auto& kind : kUnsupportedKinds) {
    if (kind.name == name) return unsupported("tokenizer.ggml.model '{}' ({}) is not supported", name, kind.known_as);
  }
  return unsupported("tokenizer.ggml.model '{}' is not known", escape_for_display(name, 40));
}

/// Phi-3's tokenizer swallows white space behind its special tokens, except some. GGUF has no key for it; the
/// reference goes by the model's name, too.
std::vector<TokenId> tokens_that_strip_right(const gguf::Metadata& metadata, const Vocabulary& vocabulary) {
  std::vector<TokenId> ids;
  const gguf::Value* value = metadata.find("general.name");
  std::string name(value != nullptr ? value->as_string().value_or("") : "");
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c < 0x80 ? char(std::tolower(c)) : char(c); });
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) return ids;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const TokenId id = TokenId(i);
    const TokenType type = vocabulary.type(id);
    const std::string_view text = vocabulary.text(id);
    const bool special = type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
    if (special && text != "<unk>" && text != "<s>" && text != "<|endoftext|>") ids.push_back(id);
  }
  return ids;
}

}  // namespace

struct Tokenizer::Impl {
  std::string kind, pre;
  Scheme scheme = Scheme::kNone;
  bool spaces_are_marked = false;  // spaces are written as U+2581 in the vocabulary
  bool add_space_prefix = false;   // text at the beginning, and after special tokens, gets a space in front
  Vocabulary vocabulary;
  SpecialTokens special;
  SpecialMatcher matcher;
  Bpe bpe;
  PreTokenizer pre_tokenizer;

  Result<void> load_bpe(const gguf::Metadata& metadata, std::string_view forced_pre, SpecialDefaults& defaults);
  Result<std::vector<TokenId>> encode(std::string_view text, std::span<const TrustedRange> trusted) const;
  Result<void> encode_plain(std::string_view text, bool after_special, MergeQueue& queue,
                            std::vector<TokenId>& ids) const;
  bool is_hidden(TokenId id) const {
    const TokenType type = vocabulary.type(id);
    return type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kUnused;
  }
};

Result<Tokenizer> Tokenizer::load(const gguf::Metadata& metadata) {
  HC_ASSIGN(const std::string_view name, metadata.get_string("tokenizer.ggml.model", "none"));
  HC_ASSIGN(const Kind* kind, find_kind(name));
  auto impl = std::make_shared<Impl>();
  impl->kind = kind->name;
  impl->scheme = kind->scheme;
  SpecialDefaults defaults = kind->defaults;
  if (kind->scheme != Scheme::kNone) {
    HC_ASSIGN(impl->vocabulary, Vocabulary::load(metadata));
    promote_structural_tokens(impl->vocabulary);
    impl->matcher = SpecialMatcher(impl->vocabulary, tokens_that_strip_right(metadata, impl->vocabulary));
    if (kind->scheme == Scheme::kBpe) {
      HC_TRY(impl->load_bpe(metadata, kind->pre, defaults));
    } else {
      impl->pre = "default";
      impl->spaces_are_marked = true;
    }
    HC_ASSIGN(impl->add_space_prefix,
              metadata.get_bool("tokenizer.ggml.add_space_prefix", kind->scheme == Scheme::kSpm));
    HC_ASSIGN(const bool remove_spaces, metadata.get_bool("tokenizer.ggml.remove_extra_whitespaces", false));
    if (remove_spaces)
      log_warning("tokenizer.ggml.remove_extra_whitespaces is ignored: text is tokenized as it stands");
    HC_ASSIGN(impl->special, read_special_tokens(metadata, impl->vocabulary, defaults));
    if (kind->name == "gemma4" && !impl->special.add_bos && impl->special.bos) {
      // Early files say no by mistake; without BOS the model writes nonsense.
      log_warning("tokenizer.ggml.add_bos_token is false, but Gemma 4 needs its BOS token: it is added");
      impl->special.add_bos = true;
    }
  }
  Tokenizer tokenizer;
  tokenizer.impl_ = std::move(impl);
  return tokenizer;
}

Result<void> Tokenizer::Impl::load_bpe(const gguf::Metadata& metadata, std::string_view forced_pre,
                                       SpecialDefaults& defaults) {
  HC_ASSIGN(std::string_view name, metadata.get_string("tokenizer.ggml.pre", ""));
  if (!forced_pre.empty()) name = forced_pre;
  const PreTokenizerRule* rule = find_pre_tokenizer(name);
  if (rule == nullptr) {
    rule = &default_pre_tokenizer();
    log_warning("tokenizer.ggml.pre '{}' is {}: the default pre-tokenizer is used, answers may be worse",
                escape_for_display(name, 40), name.empty() ? "missing" : "not known");
  }
  pre = rule->name;
  spaces_are_marked = (rule->flags & kRawCharacters) != 0;
  if (rule->flags & kAddBos) defaults.add_bos = true;
  if (rule->flags & kNoDefaultBos) defaults.bos = kNoToken;
  HC_ASSIGN(pre_tokenizer, PreTokenizer::create(*rule));
  const BpeOptions options = {.byte_level = (rule->flags & kRawCharacters) == 0,
                              .whole_chunks = (rule->flags & kWholeChunks) != 0,
                              .whole_newlines = (rule->flags & kWholeNewlines) != 0};
  HC_ASSIGN(bpe, Bpe::load(metadata, vocabulary, options));
  return {};
}

bool Tokenizer::has_vocabulary() const { return impl_->scheme != Scheme::kNone; }
size_t Tokenizer::vocabulary_size() const { return impl_->vocabulary.size(); }
const SpecialTokens& Tokenizer::special() const { return impl_->special; }
std::string_view Tokenizer::kind() const { return impl_->kind; }
std::string_view Tokenizer::pre() const { return impl_->pre; }

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, bool parse_special) const {
  const TrustedRange all{0, text.size()};
  return impl_->encode(text, std::span(&all, parse_special && !text.empty() ? 1 : 0));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::span<const Segment> segments) const {
  std::string text;
  std::vector<TrustedRange> trusted;
  for (const Segment& segment : segments) {
    const size_t begin = text.size();
    text += segment.text;
    if (segment.is_input || segment.text.empty()) continue;
    if (!trusted.empty() && trusted.back().end == begin) {
      trusted.back().end = text.size();
    } else {
      trusted.push_back({begin, text.size()});
    }
  }
  return impl_->encode(text, trusted);
}

Result<std::vector<TokenId>> Tokenizer::Impl::encode(std::string_view text,
                                                     std::span<const TrustedRange> trusted) const {
  if (scheme == Scheme::kNone) return unsupported("the model has no vocabulary (tokenizer.ggml.model is '{}')", kind);
  if (text.size() >= kMaxTextBytes) return invalid("a text of {} bytes is too long to tokenize", text.size());
  std::vector<TokenId> ids;
  MergeQueue queue;
  bool after_special = true;  // the beginning counts as such
  for (const Fragment& fragment : matcher.cut(text, trusted)) {
    if (fragment.token != kNoToken) {
      ids.push_back(fragment.token);
      after_special = true;
    } else {
      HC_TRY(encode_plain(text.substr(fragment.begin, fragment.end - fragment.begin), after_special, queue, ids));
      after_special = false;
    }
  }
  return ids;
}

/// Text without special tokens in it.
Result<void> Tokenizer::Impl::encode_plain(std::string_view text, bool after_special, MergeQueue& queue,
                                           std::vector<TokenId>& ids) const {
  std::string marked;
  if (spaces_are_marked) {
    if (scheme == Scheme::kSpm && add_space_prefix && after_special) marked += kSpaceMark;
    append_escaped_spaces(marked, text);
    text = marked;
    if (text.size() >= kMaxTextBytes) return invalid("a text of {} bytes is too long to tokenize", text.size());
  }
  if (scheme == Scheme::kSpm) {
    encode_spm(vocabulary, text, special.unk.value_or(kNoToken), queue, ids);
    return {};
  }
  HC_ASSIGN(const std::vector<uint32_t> ends, pre_tokenizer.split(text));
  size_t begin = 0;
  for (const uint32_t end : ends) {
    bpe.encode(vocabulary, text.substr(begin, end - begin), queue, ids);
    begin = end;
  }
  return {};
}

std::string Tokenizer::token_bytes(TokenId id, bool with_special) const {
  const Vocabulary& vocabulary = impl_->vocabulary;
  if (!vocabulary.contains(id)) return {};
  if (impl_->is_hidden(id)) return with_special ? std::string(vocabulary.text(id)) : std::string();
  const std::string_view text = vocabulary.text(id);
  if (vocabulary.type(id) == TokenType::kByte) return std::string(1, char(vocabulary.byte_of(id)));
  if (impl_->spaces_are_marked) return unescape_spaces(text);
  return vocabulary.type(id) == TokenType::kUserDefined ? std::string(text) : from_byte_level(text);
}

std::string_view Tokenizer::token_text(TokenId id) const {
  return impl_->vocabulary.contains(id) ? impl_->vocabulary.text(id) : std::string_view();
}

TokenType Tokenizer::token_type(TokenId id) const {
  return impl_->vocabulary.contains(id) ? impl_->vocabulary.type(id) : TokenType::kUnknown;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool with_special) const {
  std::string text;
  bool after_special = true;
  for (const TokenId id : ids) {
    if (!impl_->vocabulary.contains(id)) continue;
    const std::string bytes = token_bytes(id, with_special);
    std::string_view piece = bytes;
    const TokenType type = token_type(id);
    const bool is_special = impl_->is_hidden(id) || type == TokenType::kUserDefined;
    // The space that encode() put in front of text is taken away again.
    if (impl_->scheme == Scheme::kSpm && impl_->add_space_prefix && after_special && !is_special &&
        piece.substr(0, 1) == " ") {
      piece.remove_prefix(1);
    }
    text += piece;
    after_special = is_special;
  }
  return text;
}

std::optional<TokenId> Tokenizer::find(std::string_view token_text) const {
  if (!has_vocabulary()) return std::nullopt;
  const TokenId id = impl_->vocabulary.find(token_text);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  const std::vector<TokenId>& ends = impl_->special.end_of_generation;
  return std::binary_search(ends.begin(), ends.end(), id);
}

}  // namespace honeycrisp::text
