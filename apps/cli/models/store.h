// The models kept in the cache: FILE.gguf with a small FILE.gguf.manifest.json beside it that says where it came from
// and its hash. Finds, lists and removes them. Knows nothing of how they are fetched, or of what is inside.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::cli {

struct StoredModel {
  std::string name;    // what -m accepts: the known name, or the file name without .gguf
  std::string file;    // name in the folder
  std::string path;    // whole path
  uint64_t bytes = 0;  // on disk
  std::string sha256;  // empty: never checked
  std::string source;  // package names or URL; empty: put there by hand
};

class ModelStore {
 public:
  /// The user's models folder.
  static Result<ModelStore> open();
  explicit ModelStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string path_of(std::string_view file) const { return folder_ + "/" + std::string(file); }

  /// All models, by name. A folder that does not exist is an empty one; files that cannot be read are left out.
  std::vector<StoredModel> list() const;
  /// By name or file name. A name is never joined to a path: only what list() found can match.
  std::optional<StoredModel> find(std::string_view name) const;
  /// Files of interrupted downloads, whole paths.
  std::vector<std::string> unfinished() const;

  Result<void> write_manifest(const StoredModel& model) const;
  /// Removes the model and its manifest.
  Result<void> remove(const StoredModel& model) const;

 private:
  std::string folder_;
};

/// Whether a name may become a file of the store: letters, digits and . _ + - only, not starting with a dot, ending in
/// .gguf, at most 200 bytes. No path can be built from such a name.
bool is_safe_model_file_name(std::string_view file);

/// Suffixes of what a download leaves in the folder while it is under way.
inline constexpr std::string_view kPartSuffix = ".part";
inline constexpr std::string_view kPartStateSuffix = ".part.json";

}  // namespace honeycrisp::cli
