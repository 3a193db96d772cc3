// Reading what the user types: with editing and history where both ends are a terminal, plain lines otherwise. Owns the
// history file. Knows nothing of what the lines mean.
#pragma once

#include <memory>
#include <string>

namespace honeycrisp::cli {

class LineEditor {
 public:
  /// History is kept in `history_path`, readable by the user alone; empty: not kept.
  explicit LineEditor(std::string history_path);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Status { kLine, kInterrupted, kEnd };
  struct Input {
    Status status = Status::kEnd;
    std::string line;  // without its newline; what had been typed, if interrupted
  };
  Input read(const std::string& prompt);
  void remember(const std::string& line);
  bool interactive() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace honeycrisp::cli
