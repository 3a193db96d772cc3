// Loading a model and describing it. Computing is in session.cpp.
#include "backend/registry.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/memory_size.h"
#include "base/result.h"
#include "base/text_escape.h"
#include "engine/engine_impl.h"
#include "engine/plan_memory.h"
#include "program/check.h"
#include <honeycrisp/engine.h>

#include <algorithm>
#include <new>

namespace honeycrisp {
namespace {

constexpr size_t kMaxNameBytes = 200;  // of a file's text shown to people

/// Formats of the matrices by their share of the bytes, e.g. "Q4_1 (96 %), Q8_0 (4 %)".
std::string describe_quantization(const program::Program& program) {
  std::vector<std::pair<uint64_t, quant::Format>> shares;
  uint64_t total = 0;
  for (const program::Weight& weight : program.weights) {
    total += weight.bytes;
    const auto same = [&](const auto& share) { return share.second == weight.format; };
    const auto found = std::find_if(shares.begin(), shares.end(), same);
    if (found == shares.end()) {
      shares.emplace_back(weight.bytes, weight.format);
    } else {
      found->first += weight.bytes;
    }
  }
  std::sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;  // most bytes first
  });
  if (shares.size() == 1) return std::string(quant::to_string(shares.front().second));
  std::string text;
  for (const auto& [bytes, format] : shares) {
    const double percent = 100 * double(bytes) / double(std::max<uint64_t>(total, 1));
    text += fmt::format("{}{} ({:.0f} %)", text.empty() ? "" : ", ", quant::to_string(format), percent);
  }
  return text;
}

/// Ids that can be both computed and read as text. A logit without a vocabulary entry is never chosen, and an entry
/// without an embedding row is refused: files with either exist.
uint32_t usable_vocabulary(const engine::EngineParts& parts) {
  const uint32_t rows = std::min(parts.model.summary.vocabulary, parts.model.program.vocabulary);
  if (!parts.tokenizer.has_vocabulary() || parts.tokenizer.vocabulary_size() == rows) return rows;
  const size_t entries = parts.tokenizer.vocabulary_size();
  log_warning("the tokenizer has {} entries and the model {} rows: the first {} ids are used", entries, rows,
              std::min<size_t>(entries, rows));
  return uint32_t(std::min<size_t>(entries, rows));
}

/// Main memory that a backend's own copies of the weights may take; 0: not known. A file that was read rather than
/// mapped stays where it is, a mapped one's pages give way.
uint64_t weight_memory(const gguf::File& file, const EngineOptions& options) {
  const uint64_t machine = usable_memory();
  if (machine == 0 || options.mmap) return machine;
  return std::max<uint64_t>(1, machine - std::min(machine, file.file_bytes()));
}

ModelInfo describe(const engine::EngineParts& parts, uint32_t context) {
  const model::ModelSummary& summary = parts.model.summary;
  ModelInfo info;
  info.path = parts.path;
  info.file_bytes = parts.file.file_bytes();
  info.has_chat_template = parts.file.metadata().contains(engine::kChatTemplateKey);
  info.name = escape_for_display(summary.name, kMaxNameBytes);
  info.architecture = summary.architecture;
  info.quantization = describe_quantization(parts.model.program);
  info.parameters = summary.parameters;
  info.weight_bytes_per_token = program::weight_bytes(parts.model.program);
  info.layers = summary.n_layers;
  info.width = summary.width;
  info.vocabulary = usable_vocabulary(parts);
  info.trained_context = summary.trained_context;
  info.context = context;
  info.has_vocabulary = parts.tokenizer.has_vocabulary();
  return info;
}

}  // namespace

Result<KvType> parse_kv_type(std::string_view name) {
  std::string known;
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8_0}) {
    const std::string_view own_name = backend::to_string(engine::cache_type(type));
    if (own_name == name) return type;
    known.append(known.empty() ? "" : ", ").append(own_name);
  }
  return invalid("KV cache type '{}' is unknown (there are: {})", escape_for_display(name, 64), known);
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const backend::Backend* backend : backend::all_backends()) names.emplace_back(backend->name());
  return names;
}

Engine::Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

namespace {

/// "model.gguf: llama.block_count: …": what is wrong inside a file begins with the file's name.
template <class T>
Result<T> inside(const std::string& path, Result<T> result) {
  const std::string name = escape_for_display(path) + ": ";
  if (!result && !result.error().message.starts_with(name)) result.error().message.insert(0, name);
  return result;
}

}  // namespace

Result<std::shared_ptr<Engine>> Engine::load(const std::string& path, EngineOptions options) try {
  HC_TRY(backend::find_backend(options.backend));  // a wrong name is said before anything is read
  HC_ASSIGN(gguf::File file, gguf::File::open(path, {.mmap = options.mmap}));
  HC_ASSIGN(model::Model model, inside(path, model::load(file, {.context = options.context})));
  HC_ASSIGN(text::Tokenizer tokenizer, inside(path, text::Tokenizer::load(file.metadata())));
  for (const std::string& note : model.summary.notes) log_info("{}", note);
  HC_ASSIGN(const backend::Choice choice,
            inside(path, backend::choose_backend(options.backend, model.program,
                                                 {.cache_type = engine::cache_type(options.kv_type),
                                                  .activations = engine::activations(options),
                                                  .threads = options.threads,
                                                  .max_rows = options.chunk})));
  if (!choice.passed_over.empty()) log_warning("{}; it runs on {}", choice.passed_over, choice.backend->name());
  return engine::assemble({.path = path,
                           .file = std::move(file),
                           .model = std::move(model),
                           .tokenizer = std::move(tokenizer),
                           .backend = choice.backend},
                          options);
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "{}: out of memory while it was loaded", escape_for_display(path));
}

/// Engine's friend: puts an Impl together.
struct EngineFactory {
  static Result<std::shared_ptr<Engine>> make(engine::EngineParts parts, const EngineOptions& options) {
    const uint32_t context = model::resolve_context(options.context, parts.model.summary.trained_context);
    HC_ASSIGN(const engine::KvCache::Limits limits, engine::plan_cache(options, context, parts.model, usable_memory()));
    if (parts.model.summary.trained_context != 0 && context > parts.model.summary.trained_context)
      log_warning("a context of {} is more than the {} positions that the model was trained on", context,
                  parts.model.summary.trained_context);

    auto impl = std::make_shared<Engine::Impl>(std::move(parts));
    const program::Program& program = impl->parts.model.program;
    impl->info = describe(impl->parts, context);
    if (impl->info.vocabulary == 0) return invalid("{}: the vocabulary is empty", escape_for_display(impl->parts.path));
    HC_ASSIGN(impl->executor,
              inside(impl->parts.path,
                     impl->parts.backend->compile(
                         program, {.cache_type = engine::cache_type(options.kv_type),
                                   .activations = engine::activations(options),
                                   .threads = options.threads,
                                   .max_rows = options.chunk,
                                   .max_positions = context,
                                   .n_choosable = impl->info.vocabulary,
                                   .memory_limit = weight_memory(impl->parts.file, options),
                                   .kernel_folder = options.kernel_folder,
                                   .progress = options.progress,
                                   .release_source = [file = impl->parts.file](const std::byte* data, uint64_t bytes) {
                                     file.release(data, bytes);
                                   }})));
    const auto pages = engine::sequence_page_bytes(program.pools, engine::cache_type(options.kv_type), limits);
    const auto states = engine::sequence_state_bytes(program, limits);
    if (const backend::Plan& plan = impl->executor->plan(); pages && states)
      if (const std::string over =
              engine::over_device(plan, program::resident_bytes(program) + *pages + *states + plan.buffer_bytes);
          !over.empty())
        log_warning("{}", over);
    impl->cache.emplace(*impl->executor, program, limits);
    impl->stepper.emplace(
        *impl->executor, *impl->cache,
        engine::Stepper::Shape{
            .chunk = options.chunk, .table_rows = program.vocabulary, .vocabulary = impl->info.vocabulary});
    impl->info.backend = impl->executor->plan().backend;
    for (const engine::PagePool& pool : impl->cache->pools)
      impl->info.kv_bytes_per_token += pool.page_bytes() / program::kPagePositions;
    impl->info.state_bytes = impl->executor->state_bytes();
    impl->internals.emplace(Engine::Internals{.file = impl->parts.file,
                                              .model = impl->parts.model,
                                              .tokenizer = impl->parts.tokenizer,
                                              .plan = impl->executor->plan(),
                                              .executor = *impl->executor,
                                              .cache_type = engine::cache_type(options.kv_type),
                                              .chunk = options.chunk});
    return std::shared_ptr<Engine>(new Engine(std::move(impl)));
  }
};

Result<std::shared_ptr<Engine>> engine::assemble(EngineParts parts, const EngineOptions& options) {
  return EngineFactory::make(std::move(parts), options);
}

void engine::prepend_bos(const text::SpecialTokens& special, std::vector<Token>& tokens) {
  if (!special.add_bos || !special.bos) return;
  if (tokens.empty() || tokens.front() != *special.bos) tokens.insert(tokens.begin(), *special.bos);
}

const ModelInfo& Engine::info() const { return impl_->info; }
const Engine::Internals& Engine::internals() const { return *impl_->internals; }

Result<std::vector<Token>> Engine::tokenize(std::string_view text, bool parse_special) const {
  return impl_->parts.tokenizer.encode(text, parse_special);
}

Result<std::vector<Token>> Engine::tokenize_prompt(std::string_view text, bool parse_special) const {
  HC_ASSIGN(std::vector<Token> tokens, tokenize(text, parse_special));
  engine::prepend_bos(impl_->parts.tokenizer.special(), tokens);
  return tokens;
}

std::string Engine::detokenize(std::span<const Token> tokens, bool with_special) const {
  return impl_->parts.tokenizer.decode(tokens, with_special);
}

bool Engine::is_end_of_generation(Token token) const { return impl_->parts.tokenizer.is_end_of_generation(token); }

std::vector<Token> Engine::end_of_generation() const { return impl_->parts.tokenizer.special().end_of_generation; }

}  // namespace honeycrisp
