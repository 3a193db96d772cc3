// See toy_engine.h.
#include "engine/testing/toy_engine.h"

#include "base/check.h"
#include "gguf/file.h"
#include "gguf/writer.h"

#include <filesystem>
#include <unistd.h>

namespace honeycrisp::engine::toy {
namespace {

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6;  // tokenizer.ggml.token_type

struct Entry {
  const char* text;
  int32_t type;
};
constexpr Entry kEntries[kToyTokens] = {
    {"<unk>", kUnknown}, {"<s>", kControl},    {"</s>", kControl},       {"a", kNormal},  {"b", kNormal},
    {"c", kNormal},      {"\u2581a", kNormal}, {"ST", kNormal},          {"OP", kNormal}, {"<0xE2>", kByte},
    {"<0x82>", kByte},   {"<0xAC>", kByte},    {"<|im_end|>", kControl},
};

/// A file with the vocabulary and no tensor; it is read into memory and does not stay on disk.
gguf::File make_file(const std::string& chat_template, bool add_bos) {
  gguf::Writer writer;
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  for (const Entry& entry : kEntries) {
    texts.emplace_back(entry.text);
    types.push_back(entry.type);
  }
  writer.add_string("tokenizer.ggml.model", "llama");
  writer.add_strings("tokenizer.ggml.tokens", texts);
  writer.add_int32s("tokenizer.ggml.token_type", types);
  writer.add_float32s("tokenizer.ggml.scores", std::vector<float>(kToyTokens, -1.0f));
  writer.add_bool("tokenizer.ggml.add_bos_token", add_bos);
  if (!chat_template.empty()) writer.add_string("tokenizer.chat_template", chat_template);
  const auto path = std::filesystem::temp_directory_path() / fmt::format("honeycrisp-toy-{}.gguf", getpid());
  const auto written = writer.write(path.string());
  HC_CHECK(written, "{}", written.error().message);
  auto file = gguf::File::open(path.string(), {.mmap = false});
  HC_CHECK(file, "{}", file.error().message);
  std::filesystem::remove(path);
  return std::move(*file);
}

}  // namespace

ToyEngine::ToyEngine(EngineOptions options, uint32_t rows, const std::string& chat_template, bool add_bos,
                     uint32_t recurrent) {
  gguf::File file = make_file(chat_template, add_bos);
  auto tokenizer = text::Tokenizer::load(file.metadata());
  HC_CHECK(tokenizer, "{}", tokenizer.error().message);
  model::Model model{.summary = {.architecture = "toy", .vocabulary = rows},
                     .program = make_program({0, 40}, rows, recurrent)};
  auto engine = assemble({.path = "toy",
                          .file = std::move(file),
                          .model = std::move(model),
                          .tokenizer = std::move(*tokenizer),
                          .backend = &backend_},
                         options);
  HC_CHECK(engine, "{}", engine.error().message);
  engine_ = std::move(*engine);
}

}  // namespace honeycrisp::engine::toy
