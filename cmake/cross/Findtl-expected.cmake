# tl::expected is headers alone.
find_path(TL_EXPECTED_INCLUDE_DIR tl/expected.hpp REQUIRED)
if(NOT TARGET tl::expected)
  add_library(tl::expected INTERFACE IMPORTED GLOBAL)
endif()
set(tl-expected_FOUND TRUE)
