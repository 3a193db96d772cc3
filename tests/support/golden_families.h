// The golden files of tests/data/families: the lists that every suite takes them from. A new file is one row here,
// and made by tests/golden/make_golden.py.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace honeycrisp::test_support {

struct GoldenFamily {
  const char* name;             // <name>.gguf, <name>.tokens.txt, <name>.logits.f32
  double reference_bar = 1e-5;  // relative error of all logits on `reference`: three times an independent pass in f32
  double cpu_bar = 5e-5;        // the same on `cpu`; wider where weights meet activations as 14-bit integers
  uint32_t context = 0;         // to load it for (0: the trained one); chooses long-rope factors
  bool narrow_heads = false;    // heads that are no whole q8_0 block, so that such a cache is refused
  bool slow = false;            // on `reference`: the engine's tests run it there with one type of cache

  friend void PrintTo(const GoldenFamily& family, std::ostream* out) { *out << family.name; }
};

inline constexpr GoldenFamily kGoldenFamilies[] = {
    {.name = "llama", .narrow_heads = true},
    {.name = "llama3-rope"},
    {.name = "llama-bias"},
    {.name = "mistral"},
    {.name = "smollm3", .narrow_heads = true},
    {.name = "granite", .narrow_heads = true},
    {.name = "granite4", .narrow_heads = true},
    {.name = "olmo2", .narrow_heads = true},
    {.name = "olmo3", .narrow_heads = true},
    {.name = "phi3", .narrow_heads = true},
    {.name = "phi3-long", .narrow_heads = true},
    {.name = "phi3-short", .context = 64, .narrow_heads = true},
    {.name = "qwen2", .narrow_heads = true},
    {.name = "qwen2-yarn"},
    {.name = "qwen3"},
    {.name = "gemma2"},
    {.name = "gemma3"},
    {.name = "gemma4", .reference_bar = 3e-5},
    {.name = "gemma4-e", .reference_bar = 1.5e-5},
    {.name = "mistral3"},
    {.name = "qwen3moe", .slow = true},
    {.name = "qwen2moe", .narrow_heads = true, .slow = true},
    {.name = "qwen3moe-all", .slow = true},
    {.name = "qwen3next", .slow = true},
    {.name = "qwen35", .slow = true},
    {.name = "qwen35moe", .slow = true},
    {.name = "gemma4-moe", .slow = true},
    {.name = "gptoss", .slow = true},
    {.name = "gptoss-mxfp4", .cpu_bar = 2e-4, .slow = true},
    {.name = "mixtral", .slow = true},
};

inline std::string golden_path(std::string_view name, std::string_view suffix) {
  return std::string(HONEYCRISP_TEST_DATA) + "/families/" + std::string(name) + std::string(suffix);
}

/// "gemma4_e": a test's name may hold no dash.
inline std::string test_name(std::string_view name) {
  std::string result(name);
  for (char& c : result)
    if (c == '-') c = '_';
  return result;
}

}  // namespace honeycrisp::test_support
