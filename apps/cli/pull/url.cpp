#include "cli/pull/url.h"

#include "base/text_escape.h"

#include <curl/curl.h>
#include <memory>

namespace honeycrisp::cli {
namespace {

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDeleter>;

Url parse(const std::string& text) {
  Url url(curl_url());
  // Without CURLU_NON_SUPPORT_SCHEME: an unknown scheme is a parse error.
  if (!url || text.find('\0') != std::string::npos ||
      curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
    return nullptr;
  return url;
}

std::string part(const Url& url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), which, &text, flags) != CURLUE_OK) return {};
  std::string result = text;
  curl_free(text);
  return result;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host == "[::1]") return true;
  // libcurl has already turned every spelling of an IPv4 address (hexadecimal, short forms) into four decimal numbers.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
}

}  // namespace

Result<void> check_url_allowed(const std::string& text) {
  const Url url = parse(text);
  if (!url) return invalid("{}: not a URL that can be fetched", escape_for_display(text, 300));
  const std::string scheme = part(url, CURLUPART_SCHEME), host = part(url, CURLUPART_HOST);
  if (host.empty()) return invalid("{}: the URL names no host", display_url(text));
  if (scheme == "https" || (scheme == "http" && is_loopback(host))) return {};
  if (scheme == "http")
    return invalid("{}: http is not encrypted and is used for this machine only: use https", display_url(text));
  return invalid("{}: only https URLs can be fetched", display_url(text));
}

Result<std::string> resolve_url(const std::string& base, const std::string& reference) {
  const Url url = parse(base);
  if (!url || reference.find('\0') != std::string::npos ||
      curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK)
    return invalid("{}: not a URL (found at {})", escape_for_display(reference, 300), display_url(base));
  return part(url, CURLUPART_URL);
}

std::string display_url(const std::string& text) {
  const Url url = parse(text);
  if (!url) return escape_for_display(text, 300);
  curl_url_set(url.get(), CURLUPART_USER, nullptr, 0);
  curl_url_set(url.get(), CURLUPART_PASSWORD, nullptr, 0);
  // Queries of content delivery networks are long and may carry a signature.
  curl_url_set(url.get(), CURLUPART_QUERY, nullptr, 0);
  return escape_for_display(part(url, CURLUPART_URL), 300);
}

std::string url_file_name(const std::string& text) {
  const Url url = parse(text);
  if (!url) return {};
  const std::string path = part(url, CURLUPART_PATH);
  const std::string segment = path.substr(path.rfind('/') + 1);
  int length = 0;
  char* decoded = curl_easy_unescape(nullptr, segment.c_str(), int(segment.size()), &length);
  if (decoded == nullptr) return {};
  std::string name(decoded, size_t(length));
  curl_free(decoded);
  return name;
}

}  // namespace honeycrisp::cli
