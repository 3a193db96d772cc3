// Fetching a model into the store: by name from the package index, or from a URL. Owns the order of things that makes
// it safe: lock, download beside, check size and hash, rename. Knows nothing of HTTP.
#pragma once

#include "base/result.h"
#include "cli/models/sources.h"
#include "cli/models/store.h"

#include <string>

namespace honeycrisp::cli {

struct PullOptions {
  std::string sha256;     // expected hash of a URL's file; empty: not checked
  std::string file_name;  // name to keep a URL's file under; empty: the URL's own
  int retries = 5;
};

/// Fetches a known model, unless it is there. Its hash is always checked. On Ctrl-C, kCancelled with a message that
/// says what is kept.
Result<StoredModel> pull_named(const ModelStore& store, const NamedModel& model, const PullOptions& options);

/// Fetches a GGUF file from an https URL. A model of several files (NAME-00001-of-0000N.gguf) is fetched whole; the
/// first file is returned. A different file of the same name is never overwritten.
Result<StoredModel> pull_url(const ModelStore& store, const std::string& url, const PullOptions& options);

/// "ORG/REPO:FILE" as a URL of the model hub; an error if it is not of that form.
Result<std::string> hub_url(const std::string& short_form);

}  // namespace honeycrisp::cli
