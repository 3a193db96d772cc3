// The command line as a whole: the tree of subcommands, what becomes of usage errors and of a command's Result, and
// the exit codes. Each subcommand is one file under commands/. Knows nothing of models.
#pragma once

namespace honeycrisp::cli {

/// Parses, runs the chosen subcommand and returns the process's exit code (see exit_code.h).
int run_app(int argc, char** argv);

}  // namespace honeycrisp::cli
