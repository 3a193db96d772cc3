// A conversation with a model: the messages, the session that holds their tokens, and one answer at a time. Knows
// nothing of how lines are typed or commands are named.
#pragma once

#include "base/result.h"
#include "cli/answer/answer.h"
#include "cli/options.h"
#include "cli/term/terminal.h"
#include <honeycrisp/chat.h>
#include <honeycrisp/generate.h>

#include <optional>
#include <string>
#include <vector>

namespace honeycrisp::cli {

class Conversation {
 public:
  Conversation(const Engine& engine, Session session, ChatEncoder encoder, SamplingOptions sampling,
               AnswerOptions options)
      : engine_(engine),
        session_(std::move(session)),
        encoder_(std::move(encoder)),
        sampling_(std::move(sampling)),
        options_(std::move(options)) {}

  /// Streams the answer to one more message. An answer that Ctrl-C cut short is kept as far as it went. After an error
  /// the conversation is as it was before.
  Result<Generation> say(const std::string& text, Output& out);
  /// Streams another answer to the last message. Error: there is none.
  Result<Generation> regenerate(Output& out);

  void clear() { messages_.clear(); }
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }
  /// The system text, if there is one, and the messages.
  std::vector<Message> messages() const;

 private:
  Result<Generation> answer(Output& out);

  const Engine& engine_;
  Session session_;  // keeps what the next prompt has in common with this one
  ChatEncoder encoder_;
  SamplingOptions sampling_;
  AnswerOptions options_;
  std::string system_;
  std::vector<Message> messages_;  // user and assistant in turn
};

/// Writes messages to a file that does not exist yet: JSON for `honeycrisp render` if the name ends in .json, else
/// text. A leading ~/ is the home folder.
Result<void> save_conversation(const std::vector<Message>& messages, std::string path);

}  // namespace honeycrisp::cli
