#include "backend/metal/soft/scan/tokens.h"

#include <cctype>
#include <cstdlib>

namespace honeycrisp::backend::metal::soft {
namespace {

bool word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The end of a comment, a preprocessor line or a literal that starts at i, else i.
size_t skip_comment(const std::string& s, size_t i, bool line_start) {
  if (s.compare(i, 2, "//") == 0) return std::min(s.find('\n', i), s.size());
  if (s.compare(i, 2, "/*") == 0) {
    const size_t end = s.find("*/", i + 2);
    return end == std::string::npos ? s.size() : end + 2;
  }
  if (line_start && s[i] == '#') {
    while (i < s.size() && s[i] != '\n') i += s[i] == '\\' && i + 1 < s.size() ? 2 : 1;
    return i;
  }
  return i;
}

size_t skip_literal(const std::string& s, size_t i) {
  const char quote = s[i++];
  while (i < s.size() && s[i] != quote && s[i] != '\n') i += s[i] == '\\' && i + 1 < s.size() ? 2 : 1;
  return std::min(i + 1, s.size());
}

}  // namespace

Tokens::Tokens(const std::string& text, std::string file) : text_(text), file_(std::move(file)), end_{{}, text.size()} {
  bool line_start = true;
  for (size_t i = 0; i < text.size();) {
    if (const size_t after = skip_comment(text, i, line_start); after != i) {
      i = after;
      continue;
    }
    const char c = text[i];
    if (c == '\n') line_start = true;
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
      continue;
    }
    line_start = false;
    size_t end = i + 1;
    if (c == '"' || c == '\'') {
      end = skip_literal(text, i);
    } else if (word(c)) {
      while (end < text.size() &&
             (word(text[end]) || (std::isdigit(static_cast<unsigned char>(c)) && text[end] == '.')))
        ++end;
    } else if (const std::string two = text.substr(i, 2); two == "[[" || two == "]]" || two == "::" || two == "->") {
      end = i + 2;
    }
    tokens_.push_back({std::string_view(text).substr(i, end - i), i});
    i = end;
  }
}

bool Tokens::identifier(size_t i) const {
  const std::string_view t = (*this)[i].text;
  return !t.empty() && word(t[0]) && !std::isdigit(static_cast<unsigned char>(t[0]));
}

size_t Tokens::closing(size_t i) const {
  const char open = (*this)[i].text.empty() ? 0 : (*this)[i].text[0];
  const char close = open == '(' ? ')' : open == '{' ? '}' : open == '<' ? '>' : ']';
  int depth = 0;  // counts "[[" as two, so that "a[b[i]]" closes too
  for (; i < size(); ++i) {
    for (const char c : (*this)[i].text.substr(0, (*this)[i] == "->" ? 0 : 2)) {
      if ((*this)[i].text[0] == '"') break;
      depth += c == open ? 1 : c == close ? -1 : 0;
    }
    if (depth <= 0) return i;
  }
  return size();
}

int Tokens::line(size_t i) const { return std::atoi(place(i).substr(place(i).rfind(':') + 1).c_str()); }

std::string Tokens::place(size_t i) const {
  std::string file = file_;
  int line = 1;
  const size_t end = (*this)[i].at;
  for (size_t at = 0; at < end;) {
    const size_t next = std::min(text_.find('\n', at), text_.size());
    if (next >= end) break;
    if (text_.compare(at, 6, "#line ") == 0) {
      line = std::atoi(text_.c_str() + at + 6) - 1;
      const size_t quote = text_.find('"', at);
      if (quote < next) file = text_.substr(quote + 1, text_.find('"', quote + 1) - quote - 1);
    }
    ++line;
    at = next + 1;
  }
  return file + ":" + std::to_string(line);
}

}  // namespace honeycrisp::backend::metal::soft
