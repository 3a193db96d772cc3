#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace honeycrisp {

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  std::fprintf(stderr, "honeycrisp: internal error at %s:%d: %s is false%s%s\n", file, line, condition,
               detail.empty() ? "" : ": ", detail.c_str());
  std::abort();
}

}  // namespace honeycrisp
