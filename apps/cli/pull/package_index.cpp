#include "cli/pull/package_index.h"

#include "base/text_escape.h"
#include "cli/models/paths.h"
#include "cli/models/sources.h"
#include "cli/pull/http.h"
#include "cli/pull/url.h"

#include <boost/json.hpp>
#include <cstdlib>
#include <vector>

namespace honeycrisp::cli {
namespace {

namespace json = boost::json;

constexpr size_t kConfigLimit = 1 << 20;  // bytes
constexpr size_t kListLimit = 32 << 20;

std::string_view trimmed(std::string_view text) {
  const char* blank = " \t\r";
  const size_t first = text.find_first_not_of(blank);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(blank) - first + 1);
}

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? value : "";
}

/// pip's configuration files, strongest first: https://pip.pypa.io/en/stable/topics/configuration/
std::vector<std::string> pip_config_files() {
  std::vector<std::string> files;
  if (const std::string named = environment("PIP_CONFIG_FILE"); !named.empty()) {
    if (named == "/dev/null") return {};  // pip's way to say: no configuration files at all
    files.push_back(named);
  }
  if (const std::string venv = environment("VIRTUAL_ENV"); !venv.empty()) files.push_back(venv + "/pip.conf");
  const std::string home = environment("HOME"), xdg = environment("XDG_CONFIG_HOME");
  if (!xdg.empty()) files.push_back(xdg + "/pip/pip.conf");
  if (!home.empty()) {
    if (xdg.empty()) files.push_back(home + "/.config/pip/pip.conf");
    files.push_back(home + "/Library/Application Support/pip/pip.conf");
    files.push_back(home + "/.pip/pip.conf");
  }
  files.push_back("/etc/pip.conf");
  files.push_back("/etc/xdg/pip/pip.conf");
  return files;
}

const json::value* field(const json::object& object, std::string_view key, json::kind kind) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->kind() == kind ? value : nullptr;
}

}  // namespace

std::optional<std::string> index_url_in_pip_config(std::string_view text) {
  bool in_global = false;
  std::optional<std::string> url;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    at = end + 1;
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') in_global = line == "[global]";
    const size_t equals = line.find_first_of("=:");
    if (!in_global || equals == std::string_view::npos) continue;
    const std::string_view key = trimmed(line.substr(0, equals)), value = trimmed(line.substr(equals + 1));
    if ((key == "index-url" || key == "index_url") && !value.empty()) url = std::string(value);
  }
  return url;
}

std::string package_index_url() {
  std::string url = environment("PIP_INDEX_URL");
  for (const std::string& file : pip_config_files()) {
    if (!url.empty()) break;
    if (const Result<std::string> text = read_file(file, kConfigLimit))
      url = index_url_in_pip_config(*text).value_or("");
  }
  if (url.empty()) url = kDefaultPackageIndex;
  while (url.ends_with('/')) url.pop_back();
  return url;
}

Result<PackageFile> find_in_package_list(std::string_view json_text, const std::string& list_url,
                                         std::string_view file) {
  boost::system::error_code error;
  const json::value list = json::parse(json_text, error);
  const json::value* files =
      !error && list.is_object() ? field(list.get_object(), "files", json::kind::array) : nullptr;
  if (files == nullptr)
    return unsupported(
        "{}: the package index did not answer in JSON (PEP 691); set PIP_INDEX_URL to one that does, "
        "e.g. {}",
        display_url(list_url), kDefaultPackageIndex);
  for (const json::value& entry : files->get_array()) {
    if (!entry.is_object()) continue;
    const json::object& object = entry.get_object();
    const json::value* name = field(object, "filename", json::kind::string);
    const json::value* url = field(object, "url", json::kind::string);
    if (name == nullptr || url == nullptr || std::string_view(name->get_string()) != file) continue;
    PackageFile found;
    HC_ASSIGN(found.url, resolve_url(list_url, std::string(url->get_string())));
    if (const json::value* hashes = field(object, "hashes", json::kind::object))
      if (const json::value* hash = field(hashes->get_object(), "sha256", json::kind::string))
        found.sha256 = std::string(hash->get_string());
    if (const json::value* size = object.if_contains("size"); size != nullptr && size->is_number()) {
      const auto bytes = size->to_number<uint64_t>(error);
      if (!error) found.bytes = bytes;
    }
    return found;
  }
  return fail(ErrorCode::kNotFound, "{}: the package index has no file {}", display_url(list_url), file);
}

Result<PackageFile> find_package_file(const std::string& index, std::string_view package, std::string_view file,
                                      int retries) {
  const std::string list_url = index + "/" + std::string(package) + "/";
  HC_ASSIGN(const std::string text,
            fetch_document(list_url, "application/vnd.pypi.simple.v1+json", kListLimit, retries));
  return find_in_package_list(text, list_url, file);
}

}  // namespace honeycrisp::cli
