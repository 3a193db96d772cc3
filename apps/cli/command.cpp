#include "cli/command.h"

#include "base/text_escape.h"
#include "cli/number.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace honeycrisp::cli {
namespace {

std::string shown(const std::string& text) { return "\"" + escape_for_display(text, 60) + "\""; }

}  // namespace

CommandLine CommandTree::add(const std::string& name, const std::string& description) {
  return CommandLine(*root_.add_subcommand(name, description), chosen_);
}

CLI::Option& CommandLine::finish(CLI::Option* option, const std::string& type_name, const std::string& default_text) {
  option->type_name(type_name);
  if (!default_text.empty()) option->default_str(default_text);
  if (!heading_.empty()) option->group(heading_);
  return *option;
}

void CommandLine::flag(const std::string& names, bool& value, const std::string& description) {
  CLI::Option* option = app_.add_flag(names, value, description);
  if (!heading_.empty()) option->group(heading_);
}

void CommandLine::text(const std::string& names, std::optional<std::string>& value, const std::string& type_name,
                       const std::string& description, Need need, ValueCheck check) {
  const auto set = [&value](const std::string& text) { value = text; };
  CLI::Option& option = finish(app_.add_option_function<std::string>(names, set, description), type_name, "");
  option.take_last()->required(need == Need::kRequired);
  if (check) option.check(std::move(check));
}

void CommandLine::texts(const std::string& names, std::vector<std::string>& values, const std::string& type_name,
                        const std::string& description, ValueCheck check) {
  CLI::Option& option = finish(app_.add_option(names, values, description), type_name, "");
  if (option.nonpositional()) option.allow_extra_args(false);
  if (check) option.check(std::move(check));
}

void CommandLine::integer(const std::string& names, int64_t& value, int64_t least, int64_t most,
                          const std::string& description, const std::string& default_text) {
  const auto set = [&value, least, most, names](const std::string& text) {
    const auto parsed = parse_number<int64_t>(text);
    if (!parsed || *parsed < least || *parsed > most)
      throw CLI::ValidationError(
          fmt::format("{}: {} is not a whole number from {} to {}", names, shown(text), least, most));
    value = *parsed;
  };
  finish(app_.add_option_function<std::string>(names, set, description), "N", default_text).take_last();
}

void CommandLine::decimal(const std::string& names, double& value, double least, double most,
                          const std::string& description, const std::string& default_text) {
  const auto set = [&value, least, most, names](const std::string& text) {
    const auto parsed = parse_number<double>(text);
    if (!parsed || !std::isfinite(*parsed) || *parsed < least || *parsed > most)
      throw CLI::ValidationError(fmt::format("{}: {} is not a number from {} to {}", names, shown(text), least, most));
    value = *parsed;
  };
  finish(app_.add_option_function<std::string>(names, set, description), "X", default_text).take_last();
}

void CommandLine::choice(const std::string& names, std::string& value, const std::vector<std::string>& choices,
                         const std::string& description) {
  const std::string type_name = fmt::format("{}", fmt::join(choices, "|"));
  const auto set = [&value, choices, names, type_name](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end())
      throw CLI::ValidationError(fmt::format("{}: {} is not one of {}", names, shown(text), type_name));
    value = text;
  };
  finish(app_.add_option_function<std::string>(names, set, description), type_name, value).take_last();
}

void CommandLine::exclude(const std::string& name, const std::string& other) {
  app_.get_option(name)->excludes(app_.get_option(other));
}

void CommandLine::footer(const std::string& text) { app_.footer(text); }

void CommandLine::action(Action action, UsageCheck check) {
  app_.callback([&chosen = chosen_, action = std::move(action), check = std::move(check)] {
    if (const std::string fault = check ? check() : ""; !fault.empty()) throw CLI::ValidationError(fault);
    chosen = action;
  });
}

}  // namespace honeycrisp::cli
