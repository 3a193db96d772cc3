// Fetching over HTTP with libcurl: small documents into memory, large files onto the disk with resumption.
// Redirects are followed here, one by one, so that each new URL passes check_url_allowed(). Knows nothing of models.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace honeycrisp::cli {

/// The body of a document of at most `limit` bytes. `accept`: the Accept header.
Result<std::string> fetch_document(const std::string& url, const std::string& accept, size_t limit, int retries);

struct Download {
  std::string url;
  /// Grows while bytes arrive and stays after a failure; `part_path` + ".json" keeps what identifies the remote file.
  std::string part_path;
  std::optional<uint64_t> expected_bytes;  // known beforehand; anything else is an error
  /// A hash check follows, so bytes of an earlier try may be continued even if the server cannot vouch for them.
  bool hash_follows = false;
  int retries = 5;  // in a row without progress, for faults that may pass
  std::function<void(uint64_t done, std::optional<uint64_t> total)> progress;
  /// Looks at the first bytes (at least 4, or the whole file) of a file begun anew; an error ends the download.
  std::function<Result<void>(std::string_view)> check_start;
};

/// Downloads the whole file into part_path. Resumes with Range and If-Range where an earlier try left bytes and the
/// server still has the same file; begins anew otherwise. Ctrl-C (inside an InterruptScope) ends with kCancelled.
Result<void> download(const Download& request);

}  // namespace honeycrisp::cli
