// msl_scan host|strict FILE.metal OUTPUT: makes a unit of a .metal file (scanner.h). A build tool; prints and exits.
#include "backend/metal/soft/scan/scanner.h"

#include <cstdio>
#include <fstream>
#include <string>

int main(int argc, char** argv) {
  using namespace honeycrisp::backend::metal::soft;
  const std::string mode = argc == 4 ? argv[1] : "";
  if (mode != "host" && mode != "strict") {
    std::fprintf(stderr, "usage: msl_scan host|strict FILE.metal OUTPUT\n");
    return 2;
  }
  const std::string file = argv[2];
  auto text = expand_includes(file);
  if (text) text = mode == "host" ? host_unit(*text, file, unit_symbol(file)) : strict_unit(*text, file);
  if (!text) {
    std::fprintf(stderr, "%s\n", text.error().message.c_str());
    return 1;
  }
  std::ofstream out(argv[3], std::ios::binary);
  if (!(out << *text).flush()) {
    std::fprintf(stderr, "%s: cannot be written\n", argv[3]);
    return 1;
  }
  return 0;
}
