// A file that is being downloaded: its bytes so far, and beside it (PATH.json) the URL and what the server said to
// identify the remote file, so that a later run can go on where this one ended. One that is still empty when it is
// closed is removed. Knows nothing of HTTP beyond that.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace honeycrisp::cli {

class PartFile {
 public:
  struct Validator {
    std::string etag, last_modified;  // header values; either may be empty
  };

  /// Opens or creates it. Bytes that came from another URL are discarded.
  static Result<PartFile> open(const std::string& path, const std::string& url);
  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();

  uint64_t size() const { return size_; }
  const Validator& validator() const { return validator_; }

  /// Empties it; the bytes that follow belong to the remote file that `validator` identifies.
  Result<void> restart(Validator validator);
  Result<void> append(std::string_view bytes);
  /// Error if the disk has not this much room left.
  Result<void> check_space(uint64_t bytes) const;
  Result<void> sync() const;

 private:
  PartFile(std::string path, std::string url, int fd) : path_(std::move(path)), url_(std::move(url)), fd_(fd) {}
  Result<void> write_state() const;

  std::string path_, url_;
  int fd_;
  uint64_t size_ = 0;
  Validator validator_;
};

/// Error if the disk of `folder` has not this much room left.
Result<void> check_disk_space(const std::string& folder, uint64_t bytes);

}  // namespace honeycrisp::cli
