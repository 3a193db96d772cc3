// SHA-256 of bytes and files, as lower-case hex. The arithmetic is OpenSSL's.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace honeycrisp::cli {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  std::string finish();  // 64 hex digits; once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reads the file in blocks. Errors: i/o; kCancelled on Ctrl-C inside an InterruptScope.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace honeycrisp::cli
