// `honeycrisp tokenize`: text to token ids and back. Loads nothing but the vocabulary, so it works on files without
// tensors.
#include "base/text_escape.h"
#include "cli/command.h"
#include "cli/models/resolve.h"
#include "cli/options.h"
#include "cli/term/terminal.h"
#include "gguf/file.h"
#include "text/tokenizer.h"

#include <charconv>
#include <fmt/format.h>
#include <iterator>
#include <memory>
#include <vector>

namespace honeycrisp::cli {
namespace {

constexpr size_t kInputLimit = size_t(1) << 30;  // bytes
constexpr std::string_view kBlanks = " \t\r\n\v\f";

struct TokenizeArguments {
  ModelOptions model;
  bool special = false, null_separated = false, decode = false;
};

/// The pieces between separators: one more than there are separators.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t at = 0;;) {
    const size_t end = text.find(separator, at);
    pieces.push_back(text.substr(at, end - at));
    if (end == std::string_view::npos) return pieces;
    at = end + 1;
  }
}

Result<std::string> encode_line(const text::Tokenizer& tokenizer, std::string_view text, bool special) {
  HC_ASSIGN(const std::vector<text::TokenId> ids, tokenizer.encode(text, special));
  std::string line;
  for (const text::TokenId id : ids) fmt::format_to(std::back_inserter(line), "{}{}", line.empty() ? "" : " ", id);
  return line + "\n";
}

Result<std::string> decode_line(const text::Tokenizer& tokenizer, std::string_view line) {
  std::vector<text::TokenId> ids;
  for (size_t at = 0; (at = line.find_first_not_of(kBlanks, at)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    text::TokenId id = -1;
    const auto [stop, fault] = std::from_chars(line.data() + at, line.data() + end, id);
    if (fault != std::errc() || stop != line.data() + end || id < 0 || size_t(id) >= tokenizer.vocabulary_size())
      return invalid("\"{}\" is not a token id from 0 to {}", escape_for_display(line.substr(at, end - at), 40),
                     int64_t(tokenizer.vocabulary_size()) - 1);
    ids.push_back(id);
    at = end;
  }
  return tokenizer.decode(ids, /*with_special=*/true);
}

Result<std::string> convert(const TokenizeArguments& arguments, const text::Tokenizer& tokenizer,
                            std::string_view input) {
  std::string output;
  if (!arguments.decode) {
    const auto texts = arguments.null_separated ? split(input, '\0') : std::vector<std::string_view>{input};
    for (const std::string_view text : texts) {
      HC_ASSIGN(const std::string line, encode_line(tokenizer, text, arguments.special));
      output += line;
    }
    return output;
  }
  if (!arguments.null_separated) return decode_line(tokenizer, input);
  if (input.ends_with('\n')) input.remove_suffix(1);  // ends the last line, is not between two
  bool first = true;
  for (const std::string_view line : split(input, '\n')) {
    HC_ASSIGN(const std::string text, decode_line(tokenizer, line));
    if (!first) output += '\0';
    first = false;
    output += text;
  }
  return output;
}

Result<void> run(const TokenizeArguments& arguments) {
  HC_ASSIGN(const std::string path, resolve_model_or_default(arguments.model.model));
  HC_ASSIGN(const gguf::File file, gguf::File::open(path));
  HC_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(file.metadata()));
  if (!tokenizer.has_vocabulary()) return invalid("{}: the file has no vocabulary", escape_for_display(path));
  HC_ASSIGN(const std::string input, read_stdin(kInputLimit));
  HC_ASSIGN(const std::string output, convert(arguments, tokenizer, input));
  Output out;
  return arguments.decode ? out.write_untrusted(output) : out.write(output);
}

}  // namespace

void add_tokenize(CommandTree& tree) {
  auto arguments = std::make_shared<TokenizeArguments>();
  CommandLine line = tree.add("tokenize", "Text on stdin to token ids on stdout, and back");
  line.flag("--special", arguments->special,
            "Recognise special tokens written in the text; otherwise they are plain characters");
  line.flag("-0,--null-separated", arguments->null_separated,
            "Several texts with NUL between them, a line of ids each");
  line.flag("--decode", arguments->decode, "Ids on stdin to text on stdout, special tokens included");
  add_model_option(line, arguments->model);
  line.footer(R"(The whole of stdin is the text, its last newline included. BOS and EOS are never
added.

Examples:
  printf 'Hello world' | honeycrisp tokenize -m smollm2
  printf 'one\0two' | honeycrisp tokenize -m model.gguf --null-separated
  echo 28120 905 | honeycrisp tokenize -m smollm2 --decode)");
  line.action([arguments] { return run(*arguments); });
}

}  // namespace honeycrisp::cli
