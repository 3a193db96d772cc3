# fmt from its headers: of the version whose definitions fmt.cpp lists as a library, of others header-only, which doubles
# the time of every file that formats.
find_path(FMT_INCLUDE_DIR fmt/format-inl.h REQUIRED)
if(NOT TARGET fmt::fmt)
  file(STRINGS ${FMT_INCLUDE_DIR}/fmt/core.h fmt_version REGEX "define FMT_VERSION 9[0-9][0-9][0-9][0-9]$")
  if(fmt_version)
    add_library(hc_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
    add_library(fmt::fmt ALIAS hc_fmt)
  else()
    add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
    target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
  endif()
endif()
set(fmt_FOUND TRUE)
