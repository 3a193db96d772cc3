// The patterns are those of the models' own tokenizer.json files, and the names those that converters write
// (https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf_update.py and src/llama-vocab.cpp). Where
// a tokenizer.json has a chain of splitters, so has the list here. Changed in form only: (?i:…) is spelt out, and
// what would backtrack without bound is possessive. llama.cpp agrees chunk by chunk, except where it approximates:
// the case classes of o200k and its kin (gpt-4o, llama4, tekken, …), white space inside DeepSeek's older ranges, and
// letters newer than the Unicode version of the PCRE2 that is linked (10.42: Unicode 14).
#include "text/tokenizer/pre_tokenizer_table.h"

#include <algorithm>

namespace honeycrisp::text {
namespace {

using Pattern = std::string_view;

#define HC_CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define HC_WHITE_SPACE "\\s+(?!\\S)|\\s+"
#define HC_ASCII_SYMBOLS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
// A word of the o200k kind: upper-case letters, then lower-case ones; either part may be empty, but not both.
#define HC_CASED_WORD(suffix)                                                                        \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" suffix \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" suffix "|"

constexpr Pattern kGpt2Pattern = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" HC_WHITE_SPACE;
constexpr Pattern kQwen2Pattern = HC_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE;
constexpr Pattern kO200kPattern =
    HC_CASED_WORD(HC_CONTRACTIONS "?") "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE;
constexpr Pattern kDeepSeekV3Words = HC_ASCII_SYMBOLS
    "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE;
constexpr Pattern kCjkAndKana = "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+";
constexpr Pattern kLines = "[^\\n]+|\\n+";

constexpr Pattern kDefault[] = {"[\\p{P}$+<=>^~|]+", kGpt2Pattern, "\\p{N}+", "[0-9][0-9][0-9]"};
constexpr Pattern kGpt2[] = {kGpt2Pattern};
constexpr Pattern kGpt2Digits[] = {"\\p{N}", kGpt2Pattern};
constexpr Pattern kFalcon[] = {"[\\p{P}$+<=>^~|`]+", kGpt2Pattern, "[0-9][0-9][0-9]"};
constexpr Pattern kLlama3[] = {
    HC_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE};
constexpr Pattern kJais2[] = {
    HC_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
    "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)"
    "|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s"};
constexpr Pattern kQwen2[] = {kQwen2Pattern};
constexpr Pattern kQwen35[] = {
    HC_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE};
constexpr Pattern kMiniCpm5[] = {
    "\\p{N}{1,3}", HC_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE};
constexpr Pattern kSeedCoder[] = {
    HC_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|" HC_WHITE_SPACE};
constexpr Pattern kBailing[] = {
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|" HC_WHITE_SPACE};
constexpr Pattern kNoContractions[] = {
    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE};
constexpr Pattern kExaoneMoe[] = {HC_CONTRACTIONS
                                  "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++"
                                  "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|" HC_WHITE_SPACE};
constexpr Pattern kLaguna[] = {kLines, kQwen2Pattern};
constexpr Pattern kO200k[] = {kO200kPattern};
constexpr Pattern kTekken[] = {
    HC_CASED_WORD("") "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE};
constexpr Pattern kTinyAya[] = {kThreesFromRight, kO200kPattern};
constexpr Pattern kYoutu[] = {
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+"
    "|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"
    "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+"
    "|[\\x{3105}-\\x{312F}]+|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
    HC_CASED_WORD(HC_CONTRACTIONS "?") "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE};
// Kimi's classes are o200k's without Han; [^…] over the other categories is how one class says "and not".
constexpr Pattern kKimi[] = {
    "\\p{Han}+"
    "|[^\\r\\n\\p{L}\\p{N}]?[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]*"
    "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]+" HC_CONTRACTIONS
    "?"
    "|[^\\r\\n\\p{L}\\p{N}]?[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]+"
    "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]*" HC_CONTRACTIONS
    "?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" HC_WHITE_SPACE};
constexpr Pattern kDeepSeekV3[] = {"\\p{N}{1,3}", kCjkAndKana, kDeepSeekV3Words};
constexpr Pattern kSpark[] = {
    "\\p{N}{1,3}", kCjkAndKana,
    HC_ASCII_SYMBOLS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|" HC_WHITE_SPACE,
    "\\p{N}"};
constexpr Pattern kAfmoe[] = {
    kThreesFromRight,
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{8C48}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}"
    "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{0E40}-\\x{0E7F}\\x{0E80}-\\x{0EFF}\\x{1780}-\\x{17FF}"
    "\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+",
    kDeepSeekV3Words};
constexpr Pattern kSuperBpe[] = {"\\p{N}+", kThreesFromRight};
constexpr Pattern kBloom[] = {" ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{0964}\\x{06D4}\\x{060C})]+"};
constexpr Pattern kViking[] = {kBloom[0], "\\p{N}"};
constexpr Pattern kChameleon[] = {"<sentinel:[0-9]+>",      "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
                                  "[\\p{P}!-/:-@\\[-`{-~]", kGpt2Pattern};
constexpr Pattern kLinesOnly[] = {kLines};
// The letters of DeepSeek's first tokenizer are listed in its file by range: alphabets with case, as of Unicode 11.
constexpr Pattern kDeepSeekLlm[] = {
    "[\\r\\n]",
    "\\s?[A-Za-z"
    "\\x{00B5}\\x{00C0}-\\x{00D6}\\x{00D8}-\\x{00F6}\\x{00F8}-\\x{01BA}\\x{01BC}-\\x{01BF}\\x{01C4}-\\x{0293}"
    "\\x{0295}-\\x{02AF}\\x{0370}-\\x{0373}\\x{0376}\\x{0377}\\x{037B}-\\x{037D}\\x{037F}\\x{0386}"
    "\\x{0388}-\\x{038A}\\x{038C}\\x{038E}-\\x{03A1}\\x{03A3}-\\x{03F5}\\x{03F7}-\\x{0481}\\x{048A}-\\x{052F}"
    "\\x{0531}-\\x{0556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}"
    "\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}"
    "\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}"
    "\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}"
    "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+",
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
    "(?<!\\s)\\s++\\z",
    "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+",
    "\\p{N}+"};
constexpr Pattern kDeepSeekCoder[] = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
                                      "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}"};

#undef HC_CONTRACTIONS
#undef HC_WHITE_SPACE
#undef HC_ASCII_SYMBOLS
#undef HC_CASED_WORD

constexpr PreTokenizerRule kRules[] = {
    {"default", kDefault},
    {"a.x-4.0", kGpt2},
    {"afmoe", kAfmoe},
    {"bailingmoe", kBailing},
    {"bailingmoe2", kBailing},
    {"bloom", kBloom},
    {"chameleon", kChameleon, kAddBos},
    {"chatglm-bpe", kLlama3, kNoDefaultBos},
    {"codeshell", kGpt2Digits},
    {"cohere2moe", kTinyAya},
    {"command-r", kGpt2Digits},
    {"dbrx", kLlama3},
    {"deepseek-coder", kDeepSeekCoder},
    {"deepseek-llm", kDeepSeekLlm},
    {"deepseek-r1-qwen", kQwen2},
    {"deepseek-v3", kDeepSeekV3},
    {"exaone", kGpt2Digits},
    {"exaone-moe", kExaoneMoe},
    {"exaone4", kGpt2},
    {"f2llmv2", kQwen2},
    {"falcon", kFalcon},
    {"falcon-h1", kLlama3, kWholeChunks | kAddBos},
    {"falcon3", kLlama3, kWholeChunks | kAddBos},
    {"gemma4", kLinesOnly, kRawCharacters | kWholeNewlines | kAddBos},
    {"gigachat", kGpt2},
    {"glm4", kLlama3, kWholeChunks | kNoDefaultBos},
    {"glm5", kLlama3, kWholeChunks | kNoDefaultBos},
    {"gpt-2", kGpt2},
    {"gpt-4o", kO200k},
    {"gpt3-finnish", kBloom},
    {"granite-docling", kGpt2},
    {"grok-2", kQwen2},
    {"hunyuan", kQwen2},
    {"hunyuan-dense", kDeepSeekV3},
    {"hy_v4", kDeepSeekV3},
    {"jais", kGpt2},
    {"jais-2", kJais2},
    {"joyai-llm", kDeepSeekV3},
    {"kanana2", kO200k},
    {"kimi-k2", kKimi},
    {"kormo", kQwen2},
    {"laguna", kLaguna},
    {"lfm2", kLlama3, kWholeChunks | kAddBos},
    {"llada-moe", kBailing},
    {"llama-bpe", kLlama3, kWholeChunks | kAddBos},
    {"llama-v3", kLlama3, kWholeChunks | kAddBos},
    {"llama3", kLlama3, kWholeChunks | kAddBos},
    {"llama4", kO200k},
    {"megrez", kQwen2},
    {"mellum", kGpt2},
    {"mellum2", kGpt2Digits},
    {"midm-2.0", kLlama3, kWholeChunks | kAddBos},
    {"minerva-7b", kGpt2Digits},
    {"minicpm5", kMiniCpm5, kWholeChunks},
    {"minimax-m2", kO200k},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"phi-2", kGpt2},
    {"pixtral", kLlama3, kWholeChunks | kAddBos},
    {"poro-chat", kBloom},
    {"qwen2", kQwen2},
    {"qwen35", kQwen35},
    {"refact", kGpt2Digits},
    {"sarvam-moe", kLinesOnly, kRawCharacters},
    {"seed-coder", kSeedCoder},
    {"smaug-bpe", kLlama3},
    {"smollm", kGpt2Digits},
    {"solar-open", kQwen2},
    {"spark2_5", kSpark},
    {"stablelm2", kQwen2},
    {"starcoder", kGpt2Digits},
    {"superbpe", kSuperBpe},
    {"talkie", kO200k},
    {"tekken", kTekken, kWholeChunks | kAddBos},
    {"tiny_aya", kTinyAya},
    {"trillion", kGpt2},
    {"ufakzeka", kNoContractions},
    {"viking", kViking},
    {"youtu", kYoutu, kWholeChunks},
};

}  // namespace

const PreTokenizerRule* find_pre_tokenizer(std::string_view name) {
  const auto rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const auto& r) { return r.name == name; });
  return rule == std::end(kRules) ? nullptr : &*rule;
}

const PreTokenizerRule& default_pre_tokenizer() { return kRules[0]; }

std::span<const PreTokenizerRule> all_pre_tokenizers() { return kRules; }

}  // namespace honeycrisp::text
