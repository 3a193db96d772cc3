// The Python package index as a place that files can be fetched from: its address (pip's own settings are honoured, so
// that a mirror works here as it does for pip) and the file lists of its simple JSON API (PEP 691).
// Knows nothing of models.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace honeycrisp::cli {

struct PackageFile {
  std::string url;
  std::string sha256;             // empty if the index gives none
  std::optional<uint64_t> bytes;  // likewise
};

/// Base URL: PIP_INDEX_URL, else `index-url` of pip's configuration files (the file PIP_CONFIG_FILE names, else the
/// user's, else the system's), else the public index. May hold a user and password: show it with display_url() only.
std::string package_index_url();

/// `index-url` of the [global] section of a pip configuration file; nullopt if there is none.
std::optional<std::string> index_url_in_pip_config(std::string_view text);

/// Looks a file up by its exact name in a package's list. Errors: the package or the file is not there, or the index
/// does not speak the JSON API.
Result<PackageFile> find_package_file(const std::string& index, std::string_view package, std::string_view file,
                                      int retries);

/// The same in the text of a list that came from `list_url`.
Result<PackageFile> find_in_package_list(std::string_view json_text, const std::string& list_url,
                                         std::string_view file);

}  // namespace honeycrisp::cli
