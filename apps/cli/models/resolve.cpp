#include "cli/models/resolve.h"

#include "base/text_escape.h"
#include "cli/models/sources.h"
#include "cli/models/store.h"
#include "cli/pull/pull.h"
#include "cli/term/messages.h"

#include <cerrno>
#include <cstring>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <vector>

namespace honeycrisp::cli {
namespace {

/// Whether the path leads to something other than a folder. FIFOs and the like count: opening them explains better.
bool is_there(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

bool looks_like_path(const std::string& argument) {
  return argument.find('/') != std::string::npos || argument.ends_with(".gguf");
}

}  // namespace

Result<std::string> resolve_model(const std::string& argument) {
  if (argument.empty())
    return invalid("the model's name is empty: give a path of a GGUF file or a name (`honeycrisp list`)");
  if (is_there(argument)) return argument;
  HC_ASSIGN(const ModelStore store, ModelStore::open());
  if (const auto model = store.find(argument)) return model->path;

  const std::string shown = escape_for_display(argument, 300);
  if (struct stat info{}; ::stat(argument.c_str(), &info) == 0)
    return invalid("{}: is a directory, expected a GGUF file", shown);
  else if (errno != ENOENT && errno != ENOTDIR)  // a loop of links, a folder that may not be searched
    return fail(ErrorCode::kIo, "{}: cannot open: {}", shown, std::strerror(errno));
  if (argument.find("://") != std::string::npos)
    return fail(ErrorCode::kNotFound, "{0}: no such file; a URL is fetched first: `honeycrisp pull {0}`", shown);
  if (const size_t slash = argument.find('/'), colon = argument.find(':');
      slash != std::string::npos && colon != std::string::npos && slash < colon)
    return fail(ErrorCode::kNotFound, "{0}: no such file; one of Hugging Face is fetched first: `honeycrisp pull {0}`",
                shown);
  if (looks_like_path(argument)) return fail(ErrorCode::kNotFound, "{}: no such file", shown);
  if (find_named_model(argument) != nullptr)
    return fail(ErrorCode::kNotFound, "{0} has not been fetched yet: run `honeycrisp pull {0}`", argument);
  std::vector<std::string> names;
  for (const NamedModel& known : named_models()) names.emplace_back(known.name);
  for (const StoredModel& model : store.list())
    if (find_named_model(model.name) == nullptr) names.push_back(escape_for_display(model.name));
  return fail(ErrorCode::kNotFound, "{}: no such file, and no model of this name (there are {}; `honeycrisp list`)",
              shown, fmt::join(names, ", "));
}

Result<std::string> resolve_model_or_default(const std::optional<std::string>& argument) {
  if (argument) return resolve_model(*argument);
  const NamedModel& model = default_model();
  HC_ASSIGN(const ModelStore store, ModelStore::open());
  if (const auto stored = store.find(model.name)) return stored->path;
  print_note(fmt::format("No model given (-m): fetching the default, {} ({}), into {}", model.title,
                         human_bytes(model.bytes), store.folder()));
  const Result<StoredModel> pulled = pull_named(store, model, PullOptions{});
  if (pulled) return pulled->path;
  Error error = pulled.error();
  if (error.code != ErrorCode::kCancelled)
    error.message = fmt::format("the default model, {}, could not be fetched: {}; -m FILE.gguf takes another",
                                model.name, error.message);
  return tl::unexpected(std::move(error));
}

}  // namespace honeycrisp::cli
