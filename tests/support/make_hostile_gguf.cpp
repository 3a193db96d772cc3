// make_hostile_gguf FOLDER: writes every named hostile file there, and cases.tsv (name, verdict, words of the error)
// for tests that drive whole programs.
#include "support/hostile_gguf.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

int main(int argc, char** argv) {
  using namespace honeycrisp::test_support;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::string folder = argv[1];
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::ofstream list(folder + "/cases.tsv");
  for (const HostileCase& c : hostile_cases()) {
    const std::string file = std::string(c.name) + ".gguf";
    std::ofstream out(folder + "/" + file, std::ios::binary);
    out << c.make();
    list << file << '\t' << to_string(c.verdict) << '\t' << c.words << '\n';
    if (!out.flush() || !list) {
      std::fprintf(stderr, "cannot write %s/%s\n", folder.c_str(), file.c_str());
      return 1;
    }
  }
  return 0;
}
