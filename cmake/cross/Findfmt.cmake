# fmt from its headers alone.
find_path(FMT_INCLUDE_DIR fmt/format-inl.h REQUIRED)
if(NOT TARGET fmt::fmt)
  add_library(fmt::fmt INTERFACE IMPORTED)
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
endif()
set(fmt_FOUND TRUE)
