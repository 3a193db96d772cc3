// `honeycrisp logits`: the model's raw output for given tokens, for comparison with other implementations.
#include "base/checked.h"
#include "base/text_escape.h"
#include "cli/command.h"
#include "cli/models/paths.h"
#include "cli/models/resolve.h"
#include "cli/options.h"
#include "cli/term/interrupt.h"
#include "cli/term/messages.h"
#include "cli/term/progress.h"
#include "cli/term/terminal.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

static_assert(std::endian::native == std::endian::little, "the output format is little-endian f32");

namespace honeycrisp::cli {
namespace {

constexpr size_t kTokensLimit = size_t(1) << 28;  // bytes of the tokens file

struct LogitsArguments {
  ModelOptions model;
  std::optional<std::string> tokens, out;
  int64_t chunk = EngineOptions{}.chunk;
};

Result<std::vector<Token>> read_tokens(const std::string& path) {
  HC_ASSIGN(const std::string text, read_user_file(path, kTokensLimit));
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  std::vector<Token> tokens;
  for (size_t at = 0; (at = text.find_first_not_of(kBlanks, at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    Token token = -1;
    const auto [stop, fault] = std::from_chars(text.data() + at, text.data() + end, token);
    if (fault != std::errc() || stop != text.data() + end || token < 0)
      return invalid("{}: \"{}\" is not a token id (decimal ids separated by white space are expected)",
                     escape_for_display(path), escape_for_display(text.substr(at, end - at), 40));
    tokens.push_back(token);
    at = end;
  }
  if (tokens.empty()) return invalid("{}: holds no token ids", escape_for_display(path));
  return tokens;
}

/// The file that is written: beside its place until it is whole, unless the place is a pipe or device.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path) {
    struct stat info{};
    const bool special = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
    if (special && S_ISDIR(info.st_mode)) return invalid("{}: is a directory", escape_for_display(path));
    OutputFile file(path, special ? "" : path + ".new");
    file.fd_ = ::open(file.written_path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file.fd_ < 0) return file.os_error("cannot write");
    return file;
  }
  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, "")),
        fd_(std::exchange(other.fd_, -1)) {}
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  Result<void> write(std::span<const float> values) {
    if (write_all(fd_, {reinterpret_cast<const char*>(values.data()), values.size_bytes()})) return {};
    if (errno == EPIPE) return Fail(ErrorCode::kCancelled, "");
    return os_error("cannot write");
  }
  Result<void> finish() {
    if (::close(std::exchange(fd_, -1)) != 0) return os_error("cannot write");
    if (!temporary_.empty() && std::rename(temporary_.c_str(), path_.c_str()) != 0) return os_error("cannot rename");
    temporary_.clear();
    return {};
  }

 private:
  OutputFile(std::string path, std::string temporary) : path_(std::move(path)), temporary_(std::move(temporary)) {}
  const std::string& written_path() const { return temporary_.empty() ? path_ : temporary_; }
  tl::unexpected<Error> os_error(const char* what) const {
    return fail(ErrorCode::kIo, "{}: {}: {}", escape_for_display(path_), what, std::strerror(errno));
  }

  std::string path_, temporary_;  // temporary_ empty: written in place, or renamed already
  int fd_ = -1;
};

Result<void> run(LogitsArguments arguments) {
  HC_ASSIGN(const std::vector<Token> tokens, read_tokens(*arguments.tokens));
  HC_ASSIGN(const std::string path, resolve_model_or_default(arguments.model.model));
  arguments.model.context = int64_t(tokens.size());
  const auto chunk = uint32_t(arguments.chunk);
  HC_ASSIGN(const std::shared_ptr<Engine> engine, load_engine(path, arguments.model, chunk, 1));
  HC_ASSIGN(Session session, engine->new_session());
  HC_ASSIGN(OutputFile out, OutputFile::create(*arguments.out));

  const InterruptScope interruptible(true);
  ProgressBar bar("computing", ProgressBar::Rate::kNone, std::chrono::milliseconds(300));
  const size_t vocabulary = engine->info().vocabulary;
  std::vector<float> logits(std::min<size_t>(chunk, tokens.size()) * vocabulary);  // [chunk][vocabulary]
  size_t not_finite = 0;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    if (interrupt_requested()) return Fail(ErrorCode::kCancelled, "");
    const auto piece = std::span(tokens).subspan(at, std::min<size_t>(chunk, tokens.size() - at));
    const auto rows = std::span(logits).first(piece.size() * vocabulary);
    HC_TRY(session.append_all_logits(piece, rows));
    HC_TRY(out.write(rows));
    not_finite += size_t(std::ranges::count_if(rows, [](float logit) { return !std::isfinite(logit); }));
    bar.update(at + piece.size(), tokens.size());
  }
  HC_TRY(out.finish());
  if (not_finite != 0)
    print_warning(fmt::format("{} of {} logits are NaN or infinite", not_finite, tokens.size() * vocabulary));
  return {};
}

}  // namespace

void add_logits(CommandTree& tree) {
  auto arguments = std::make_shared<LogitsArguments>();
  arguments->model.kv_type = "f32";
  CommandLine line = tree.add("logits", "Write the logits of every position of given tokens to a file");
  line.text("--tokens", arguments->tokens, kTypeFile, "Decimal token ids separated by white space",
            CommandLine::Need::kRequired);
  line.text("--out", arguments->out, kTypeFile, "Little-endian f32, [tokens][vocabulary]",
            CommandLine::Need::kRequired);
  line.integer("--chunk", arguments->chunk, 1, 4096, "Positions computed at once; changes no bit of the result", "512");
  add_model_option(line, arguments->model);
  add_backend_option(line, arguments->model);
  add_kv_type_option(line, arguments->model);
  add_loading_options(line, arguments->model);
  line.footer(R"(The tokens are taken as they are: no BOS is added.

Example:
  printf 'The capital of France is' | honeycrisp tokenize -m smollm2 >tokens.txt
  honeycrisp logits -m smollm2 --tokens tokens.txt --out logits.f32)");
  line.action([arguments] { return run(*arguments); });
}

}  // namespace honeycrisp::cli
