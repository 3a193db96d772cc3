// `honeycrisp inspect`: what is in a GGUF file, what memory it needs, and the program that would run.
#include "cli/command.h"
#include "cli/inspect/report.h"
#include "cli/models/resolve.h"
#include "cli/options.h"
#include "cli/term/terminal.h"

#include <memory>

namespace honeycrisp::cli {
namespace {

struct InspectArguments {
  std::optional<std::string> file;
  ModelOptions model;
  bool program = false, tensors = false, json = false;
};

Result<void> run(const InspectArguments& arguments) {
  HC_ASSIGN(const std::string path, resolve_model(arguments.file ? *arguments.file : *arguments.model.model));
  InspectOptions options;
  options.backend = arguments.model.backend;
  HC_ASSIGN(options.kv_type, parse_kv_type(arguments.model.kv_type));
  options.fast_activations = arguments.model.fast_activations;
  options.context = uint32_t(arguments.model.context);
  options.threads = uint32_t(arguments.model.threads);
  HC_ASSIGN(const InspectReport report, inspect_file(path, options));
  return Output().write(arguments.json ? report_json(report)
                                       : report_text(report, arguments.tensors, arguments.program));
}

}  // namespace

void add_inspect(CommandTree& tree) {
  auto arguments = std::make_shared<InspectArguments>();
  CommandLine line = tree.add("inspect", "Show metadata, tensors and memory of a GGUF file, and its program");
  line.text("FILE", arguments->file, kTypeModel, "A GGUF file, or the name of a pulled model");
  line.flag("--program", arguments->program,
            "The program: per op the kernel, the bytes it reads, why it is not the fast one");
  line.flag("--tensors", arguments->tensors, "List every tensor");
  line.flag("--json", arguments->json, "All of it as JSON");
  add_backend_option(line, arguments->model);
  line.text("-m,--model", arguments->model.model, kTypeModel, "FILE, as other subcommands take it");
  add_context_option(line, arguments->model);
  add_kv_type_option(line, arguments->model);
  line.integer("-t,--threads", arguments->model.threads, 1, 1024, "Threads to plan for", "physical cores available");
  line.footer(R"(A file that cannot be run is shown all the same, with the reason.
Memory holds all weights; "per token" counts those that one token reads: of a
mixture of experts, the chosen ones. The program's launches are passes of the
threads (CPU) or kernels (GPU); barriers are waits of all for each other.

Examples:
  honeycrisp inspect smollm2
  honeycrisp inspect model.gguf -c 32768              memory at this context
  honeycrisp inspect model.gguf --program --backend reference
  honeycrisp inspect model.gguf --json | jq .program.launches_per_layer)");
  line.action([arguments] { return run(*arguments); },
              [arguments]() -> std::string {
                const bool positional = arguments->file.has_value(), option = arguments->model.model.has_value();
                if (positional && option) return "FILE and -m both name a model: give one of them";
                return positional || option ? "" : "FILE is required";
              });
}

}  // namespace honeycrisp::cli
