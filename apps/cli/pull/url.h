// The little that is decided about URLs: which may be used at all, how they are shown, and what file they name.
// Parsing is libcurl's, so that what is checked is what is fetched.
#pragma once

#include "base/result.h"

#include <string>

namespace honeycrisp::cli {

/// https anywhere; http only to this machine (localhost, 127.0.0.0/8, ::1). Anything else is an error that says so.
Result<void> check_url_allowed(const std::string& url);
/// `reference` as found in a document at `base`, made absolute.
Result<std::string> resolve_url(const std::string& base, const std::string& reference);
/// For messages: without user and password, safe for a terminal.
std::string display_url(const std::string& url);
/// The last segment of the path, percent-decoded; empty if there is none.
std::string url_file_name(const std::string& url);

}  // namespace honeycrisp::cli
