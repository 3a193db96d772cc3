// The named GGUF files that a reader must get right: malformed ones, each wrong in one way only, and unusual but valid
// ones. The same table serves the reader's tests, the fuzzer's seeds and the black-box tests of every command.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace honeycrisp::test_support {

enum class Verdict {
  kAccepted,  // a usable model, or a legal vocabulary
  kRefused,   // by whoever opens the file
  kReadable,  // the file is well-formed, its contents are not: loading a model ends in an error or in a working model
};
std::string_view to_string(Verdict verdict);

struct HostileCase {
  std::string_view name;  // the file's name without .gguf
  Verdict verdict;
  std::string_view words;  // what the error must contain; empty unless kRefused
  std::string (*make)();
};

std::span<const HostileCase> hostile_cases();

}  // namespace honeycrisp::test_support
