// CHECK: for our own broken invariants only, never for input. Ends the process with the place and the values.
#pragma once

#include <fmt/format.h>
#include <string>

namespace honeycrisp {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& detail);
}

#define HC_CHECK(condition, ...)                                                                 \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::honeycrisp::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (0)

#ifdef NDEBUG
#define HC_DCHECK(condition, ...) ((void)0)
#else
#define HC_DCHECK(condition, ...) HC_CHECK(condition, __VA_ARGS__)
#endif
