// The entry point of the binary `honeycrisp`; see app.h.
#include "cli/app.h"

int main(int argc, char** argv) { return honeycrisp::cli::run_app(argc, argv); }
