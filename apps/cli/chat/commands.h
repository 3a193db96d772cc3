// The lines of a chat that are not for the model: which there are, and how a line is told apart from a message.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace honeycrisp::cli {

enum class ChatCommand { kHelp, kSystem, kRegenerate, kSave, kClear, kExit };

struct ChatCommandInfo {
  ChatCommand command;
  std::string_view name;  // with its slash
  std::string_view argument;
  std::string_view description;
};

std::span<const ChatCommandInfo> chat_commands();
/// For /help.
std::string chat_help();

struct ParsedLine {
  std::optional<ChatCommand> command;
  std::string text;              // the command's argument, or the message
  bool unknown_command = false;  // `text` is its name
};

/// A line that begins with "/" is a command, with "//" a message that begins with "/".
ParsedLine parse_chat_line(std::string_view line);

/// Puts messages of several lines together: a line that ends in a backslash goes on in the next one; a line that begins
/// with """ opens a block that the next """ closes.
class MessageAssembler {
 public:
  /// Takes a line; the whole message once it is complete.
  std::optional<std::string> add(std::string_view line);
  bool in_progress() const { return in_progress_; }
  void reset() { *this = {}; }

 private:
  std::string message_;
  bool in_progress_ = false, in_block_ = false;
};

}  // namespace honeycrisp::cli
