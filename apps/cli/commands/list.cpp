// `honeycrisp list`: what is in the cache.
#include "base/text_escape.h"
#include "cli/command.h"
#include "cli/models/store.h"
#include "cli/term/messages.h"
#include "cli/term/terminal.h"
#include "cli/text_json.h"

#include <boost/json.hpp>
#include <fmt/format.h>
#include <memory>

namespace honeycrisp::cli {
namespace {

struct ListArguments {
  bool json = false, names = false;
};

std::string as_json(const std::vector<StoredModel>& models) {
  boost::json::array list;
  for (const StoredModel& model : models)
    list.push_back(boost::json::object{{"name", valid_utf8(model.name)},
                                       {"path", valid_utf8(model.path)},
                                       {"bytes", model.bytes},
                                       {"sha256", model.sha256},
                                       {"source", valid_utf8(model.source)}});
  return boost::json::serialize(list) + "\n";
}

std::string as_table(const std::vector<StoredModel>& models) {
  size_t width = 4;
  for (const StoredModel& model : models) width = std::max(width, escape_for_display(model.name).size());
  std::string text = fmt::format("{:<{}}  {:>8}  {}\n", "NAME", width, "SIZE", "SOURCE");
  for (const StoredModel& model : models)
    text += fmt::format("{:<{}}  {:>8}  {}\n", escape_for_display(model.name), width, human_bytes(model.bytes),
                        model.source.empty() ? "(put there by hand)" : escape_for_display(model.source, 60));
  return text;
}

Result<void> run(const ListArguments& arguments) {
  HC_ASSIGN(const ModelStore store, ModelStore::open());
  const std::vector<StoredModel> models = store.list();
  if (arguments.json) return Output().write(as_json(models));
  if (arguments.names) {
    std::string text;
    for (const StoredModel& model : models) text += escape_for_display(model.name) + "\n";
    return Output().write(text);
  }
  if (const size_t n = store.unfinished().size(); n > 0)
    print_note(fmt::format(
        "{} files of interrupted downloads are kept: pull again to go on, or `honeycrisp rm --unfinished`", n));
  if (models.empty()) {
    print_note(fmt::format("No models in {}: `honeycrisp pull smollm2` fetches one", store.folder()));
    return {};
  }
  return Output().write(as_table(models));
}

}  // namespace

void add_list(CommandTree& tree) {
  auto arguments = std::make_shared<ListArguments>();
  CommandLine line = tree.add("list", "List the models in the cache");
  line.flag("--json", arguments->json, "As JSON, with paths and hashes");
  line.flag("--names", arguments->names, "Only the names, a line each");
  line.exclude("--names", "--json");
  line.footer("Examples:\n  honeycrisp list\n  honeycrisp list --json");
  line.action([arguments] { return run(*arguments); });
}

}  // namespace honeycrisp::cli
