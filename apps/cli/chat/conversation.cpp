#include "cli/chat/conversation.h"

#include "base/text_escape.h"
#include "cli/answer/prompt.h"
#include "cli/models/paths.h"
#include "cli/term/interrupt.h"
#include "cli/text_json.h"

#include <boost/json.hpp>
#include <cstdlib>
#include <sys/stat.h>

namespace honeycrisp::cli {

std::vector<Message> Conversation::messages() const {
  std::vector<Message> all;
  if (!system_.empty()) all.push_back({"system", system_});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

Result<Generation> Conversation::say(const std::string& text, Output& out) {
  messages_.push_back({"user", text});
  Result<Generation> result = answer(out);
  if (!result) messages_.pop_back();
  return result;
}

Result<Generation> Conversation::regenerate(Output& out) {
  if (messages_.empty()) return invalid("there is no message to answer again yet");
  const Message last = messages_.back();
  messages_.pop_back();
  ++sampling_.seed;  // another answer, but the same one in every run with the same --seed
  Result<Generation> result = answer(out);
  if (!result) messages_.push_back(last);
  return result;
}

Result<Generation> Conversation::answer(Output& out) {
  const InterruptScope stops_the_answer(/*second_exits=*/false);
  HC_ASSIGN(const std::vector<Token> tokens, encode_conversation(encoder_, messages()));
  HC_ASSIGN(Generation generation, stream_answer(engine_, session_, tokens, sampling_, options_, out));
  reset_interrupt();
  messages_.push_back({"assistant", generation.text});
  return generation;
}

Result<void> save_conversation(const std::vector<Message>& messages, std::string path) {
  if (path.empty()) return invalid("/save needs the name of a file");
  if (const char* home = std::getenv("HOME"); home != nullptr && path.starts_with("~/")) path = home + path.substr(1);
  if (struct stat info{}; ::lstat(path.c_str(), &info) == 0)
    return invalid("{} exists already: choose another name", escape_for_display(path));
  std::string text;
  if (path.ends_with(".json")) {
    boost::json::array list;
    for (const Message& message : messages)
      list.push_back(boost::json::object{{"role", message.role}, {"content", valid_utf8(message.content)}});
    text = boost::json::serialize(boost::json::object{{"messages", std::move(list)}}) + "\n";
  } else {
    for (const Message& message : messages) text += "[" + message.role + "]\n" + message.content + "\n\n";
  }
  return write_file(path, text);
}

}  // namespace honeycrisp::cli
