#include "cli/chat/commands.h"

#include <fmt/format.h>
#include <iterator>

namespace honeycrisp::cli {
namespace {

constexpr ChatCommandInfo kCommands[] = {
    {ChatCommand::kHelp, "/help", "", "this list"},
    {ChatCommand::kSystem, "/system", "[TEXT]", "set the system text, or show it; the conversation goes on"},
    {ChatCommand::kRegenerate, "/regen", "", "answer the last message again"},
    {ChatCommand::kSave, "/save", "FILE", "write it to a new file (.json: for `honeycrisp render`)"},
    {ChatCommand::kClear, "/clear", "", "forget the conversation, keep the system text"},
    {ChatCommand::kExit, "/exit", "", "leave (Ctrl-D as well)"},
};

constexpr std::string_view kBlockQuote = "\"\"\"";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

std::span<const ChatCommandInfo> chat_commands() { return kCommands; }

std::string chat_help() {
  std::string text;
  for (const ChatCommandInfo& info : kCommands)
    fmt::format_to(std::back_inserter(text), "  {:<16} {}\n", fmt::format("{} {}", info.name, info.argument),
                   info.description);
  return text +
         "  A line that ends in \\ goes on in the next; \"\"\" opens and closes a block of\n"
         "  lines; // begins a message with /.\n"
         "  Ctrl-C stops an answer.\n";
}

ParsedLine parse_chat_line(std::string_view line) {
  if (!line.starts_with('/')) return {std::nullopt, std::string(line)};
  if (line.starts_with("//")) return {std::nullopt, std::string(line.substr(1))};
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(0, end);
  for (const ChatCommandInfo& info : kCommands)
    if (info.name == name) return {info.command, std::string(trimmed(line.substr(end)))};
  return {std::nullopt, std::string(name), true};
}

std::optional<std::string> MessageAssembler::add(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (!in_progress_ && line.starts_with(kBlockQuote)) {
    in_progress_ = in_block_ = true;
    line.remove_prefix(kBlockQuote.size());
    if (line.empty()) return std::nullopt;
  }
  in_progress_ = true;
  if (in_block_) {
    const size_t close = line.find(kBlockQuote);
    message_ += line.substr(0, close);
    if (close == std::string_view::npos) {
      message_ += '\n';
      return std::nullopt;
    }
    if (message_.ends_with('\n')) message_.pop_back();
  } else if (line.ends_with('\\')) {
    message_ += line.substr(0, line.size() - 1);
    message_ += '\n';
    return std::nullopt;
  } else {
    message_ += line;
  }
  std::string message = std::move(message_);
  reset();
  return message;
}

}  // namespace honeycrisp::cli
