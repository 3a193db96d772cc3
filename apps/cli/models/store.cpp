#include "cli/models/store.h"

#include "base/text_escape.h"
#include "cli/models/paths.h"
#include "cli/models/sources.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace honeycrisp::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::string_view kModelSuffix = ".gguf";
constexpr std::string_view kManifestSuffix = ".manifest.json";
constexpr size_t kManifestLimit = 64 * 1024;  // bytes

std::string string_field(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

/// Fills in hash and source; a missing or broken manifest leaves them empty, as for a file put there by hand.
void read_manifest(StoredModel& model) {
  const Result<std::string> text = read_file(model.path + std::string(kManifestSuffix), kManifestLimit);
  if (!text) return;
  boost::system::error_code error;
  const json::value value = json::parse(*text, error);
  if (error || !value.is_object()) return;
  const json::value* bytes = value.get_object().if_contains("bytes");
  if (bytes == nullptr || !bytes->is_number() || bytes->to_number<uint64_t>(error) != model.bytes || error) return;
  model.sha256 = string_field(value.get_object(), "sha256");
  model.source = string_field(value.get_object(), "source");
}

/// Files of the folder whose name `accept` takes, sorted; unreadable entries are left out.
template <class Accept>
std::vector<std::string> files_where(const std::string& folder, Accept accept) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code not_a_file;
    std::string name = it->path().filename().string();
    if (accept(name) && it->is_regular_file(not_a_file)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

bool is_safe_model_file_name(std::string_view file) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '+' || c == '-';
  };
  return file.size() > kModelSuffix.size() && file.size() <= 200 && file.front() != '.' && file.front() != '-' &&
         file.ends_with(kModelSuffix) && std::all_of(file.begin(), file.end(), is_plain);
}

Result<ModelStore> ModelStore::open() {
  HC_ASSIGN(std::string folder, models_folder());
  return ModelStore(std::move(folder));
}

std::vector<StoredModel> ModelStore::list() const {
  std::vector<StoredModel> models;
  for (const std::string& file :
       files_where(folder_, [](std::string_view name) { return name.ends_with(kModelSuffix); })) {
    StoredModel model;
    model.file = file;
    model.path = path_of(file);
    const NamedModel* known = find_named_model_by_file(file);
    model.name = known != nullptr ? std::string(known->name) : file.substr(0, file.size() - kModelSuffix.size());
    std::error_code error;
    model.bytes = fs::file_size(model.path, error);
    if (error) continue;
    read_manifest(model);
    models.push_back(std::move(model));
  }
  return models;
}

std::optional<StoredModel> ModelStore::find(std::string_view name) const {
  for (StoredModel& model : list())
    if (model.name == name || model.file == name) return std::move(model);
  return std::nullopt;
}

std::vector<std::string> ModelStore::unfinished() const {
  std::vector<std::string> paths;
  for (const std::string& file : files_where(folder_, [](std::string_view name) {
         return name.ends_with(kPartSuffix) || name.ends_with(kPartStateSuffix) || name.ends_with(".whl");
       }))
    paths.push_back(path_of(file));
  return paths;
}

Result<void> ModelStore::write_manifest(const StoredModel& model) const {
  const json::object manifest = {
      {"name", model.name}, {"bytes", model.bytes}, {"sha256", model.sha256}, {"source", model.source}};
  return write_file(model.path + std::string(kManifestSuffix), json::serialize(manifest) + "\n");
}

Result<void> ModelStore::remove(const StoredModel& model) const {
  if (::unlink(model.path.c_str()) != 0)
    return fail(ErrorCode::kIo, "cannot remove {}: {}", escape_for_display(model.path), std::strerror(errno));
  ::unlink((model.path + std::string(kManifestSuffix)).c_str());  // absent for a file put there by hand
  return {};
}

}  // namespace honeycrisp::cli
