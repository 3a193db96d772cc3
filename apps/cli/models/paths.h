// The folders the program keeps things in, from the environment, and how files in them are written.
// Knows nothing of models.
#pragma once

#include "base/result.h"

#include <string>
#include <string_view>

namespace honeycrisp::cli {

/// $HONEYCRISP_CACHE, else $XDG_CACHE_HOME/honeycrisp, else ~/.cache/honeycrisp (macOS: ~/Library/Caches/honeycrisp).
/// Error: none of the variables nor $HOME is set.
Result<std::string> cache_folder();
/// cache_folder()/models. Not created.
Result<std::string> models_folder();
/// cache_folder()/kernels: what was compiled for this machine's GPU. Not created.
Result<std::string> kernel_folder();
/// $XDG_STATE_HOME/honeycrisp, else ~/.local/state/honeycrisp: the chat history. Not created.
Result<std::string> state_folder();

/// Creates the folder and its parents, readable by the user alone where they are new.
Result<void> create_folders(const std::string& path);

/// Whole text of a regular file, at most `limit` bytes.
Result<std::string> read_file(const std::string& path, size_t limit);
/// The same for a file that the user names: a pipe or device (/dev/stdin, <(command)) is read to its end.
Result<std::string> read_user_file(const std::string& path, size_t limit);
/// Writes beside `path` first, then renames: readers see the old file or the new one.
Result<void> write_file(const std::string& path, std::string_view bytes);

}  // namespace honeycrisp::cli
