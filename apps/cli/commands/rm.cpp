// `honeycrisp rm`: removes models from the cache.
#include "base/text_escape.h"
#include "cli/command.h"
#include "cli/models/store.h"
#include "cli/options.h"
#include "cli/term/messages.h"

#include <CLI/CLI.hpp>
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

void add_rm(CLI::App& root, Action& chosen) {
  auto arguments = std::make_shared<RmArguments>();
  CLI::App* app = root.add_subcommand("rm", "Remove models from the cache");
  app->add_option("NAME", arguments->names, "Names as `honeycrisp list` shows them")->type_name(kTypeModel);
  app->add_flag("--unfinished", arguments->unfinished, "Remove what interrupted downloads have left");
  app->footer("Examples:\n  honeycrisp rm gemma3-270m\n  honeycrisp rm --unfinished");
  app->callback([arguments, &chosen] {
    if (arguments->names.empty() && !arguments->unfinished) throw CLI::RequiredError("a NAME, or --unfinished,");
    chosen = [arguments] { return run(*arguments); };
  });
}

}  // namespace honeycrisp::cli
