// `honeycrisp rm`: removes models from the cache.
#include "base/text_escape.h"
#include "cli/command.h"
#include "cli/models/store.h"
#include "cli/options.h"
#include "cli/term/messages.h"

#include <fmt/format.h>
#include <memory>
#include <unistd.h>

namespace honeycrisp::cli {
namespace {

struct RmArguments {
  std::vector<std::string> names;
  bool unfinished = false;
};

Result<void> run(const RmArguments& arguments) {
  HC_ASSIGN(const ModelStore store, ModelStore::open());
  // All names are looked up before anything is removed: a typing error removes nothing.
  std::vector<StoredModel> models;
  for (const std::string& name : arguments.names) {
    auto model = store.find(name);
    if (!model)
      return fail(ErrorCode::kNotFound, "no model named {} in the cache (`honeycrisp list`); nothing was removed",
                  escape_for_display(name, 200));
    models.push_back(std::move(*model));
  }
  for (const StoredModel& model : models) {
    HC_TRY(store.remove(model));
    print_note(fmt::format("Removed {} ({})", model.name, human_bytes(model.bytes)));
  }
  if (arguments.unfinished)
    for (const std::string& path : store.unfinished()) {
      ::unlink(path.c_str());
      print_note(fmt::format("Removed {}", path));
    }
  return {};
}

}  // namespace

void add_rm(CommandTree& tree) {
  auto arguments = std::make_shared<RmArguments>();
  CommandLine line = tree.add("rm", "Remove models from the cache");
  line.texts("NAME", arguments->names, kTypeModel, "Names as `honeycrisp list` shows them");
  line.flag("--unfinished", arguments->unfinished, "Remove what interrupted downloads have left");
  line.footer("Examples:\n  honeycrisp rm gemma3-270m\n  honeycrisp rm --unfinished");
  line.action([arguments] { return run(*arguments); },
              [arguments] {
                const bool nothing = arguments->names.empty() && !arguments->unfinished;
                return nothing ? "a NAME, or --unfinished, is required" : "";
              });
}

}  // namespace honeycrisp::cli
