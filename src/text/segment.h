// A piece of a prompt that remembers where it came from, so that message content can never become control tokens.
#pragma once

#include <string>

namespace honeycrisp::text {

struct Segment {
  std::string text;       // UTF-8 (content may hold malformed bytes)
  bool is_input = false;  // true: written by a user, a tool or the model; special tokens in it are plain text
};

}  // namespace honeycrisp::text
