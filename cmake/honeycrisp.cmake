# How every target of the project is compiled, and the two functions that declare them:
# hc_room(name ...) for a folder of src/, hc_test(name ...) for a test binary.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(tl-expected REQUIRED)
find_package(PkgConfig REQUIRED)

add_library(hc_flags INTERFACE)
target_compile_options(hc_flags INTERFACE
  -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  # The same bits everywhere: the compiler may neither fuse nor reorder floating-point operations.
  -ffp-contract=off -fno-fast-math
  -fvisibility=hidden)
if(HONEYCRISP_WERROR)
  target_compile_options(hc_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # false positives inside libstdc++ and tl::expected at -O3
  target_compile_options(hc_flags INTERFACE -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(HONEYCRISP_SANITIZE)
  target_compile_options(hc_flags INTERFACE -fsanitize=${HONEYCRISP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(hc_flags INTERFACE -fsanitize=${HONEYCRISP_SANITIZE})
endif()
target_include_directories(hc_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(hc_flags INTERFACE fmt::fmt tl::expected Threads::Threads)

# hc_room(name [DEPS ...] [EXTRA sources...] [EXCLUDE regex...]): static library hc_<name> from the folder's *.cpp
# (tests beside the source, *_test.cpp, become hc_<name>_tests with the label "quick").
function(hc_room name)
  cmake_parse_arguments(A "" "" "DEPS;TEST_DEPS;EXTRA;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  foreach(pattern ${A_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "${pattern}")
    list(FILTER tests EXCLUDE REGEX "${pattern}")
  endforeach()
  if(sources OR A_EXTRA)
    add_library(hc_${name} STATIC ${sources} ${A_EXTRA})
    target_link_libraries(hc_${name} PUBLIC hc_flags ${A_DEPS})
  else()
    add_library(hc_${name} INTERFACE)
    target_link_libraries(hc_${name} INTERFACE hc_flags ${A_DEPS})
  endif()
  if(HONEYCRISP_TESTS AND tests)
    hc_test(hc_${name}_tests SOURCES ${tests} DEPS hc_${name} ${A_TEST_DEPS} LABELS quick)
  endif()
endfunction()

# hc_test(name SOURCES ... [DEPS ...] [LABELS ...] [TIMEOUT seconds]): a GoogleTest binary, each case a ctest test.
function(hc_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    math(EXPR A_TIMEOUT "10 * ${A_TIMEOUT}")
  endif()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE hc_flags ${A_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE HONEYCRISP_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT} ENVIRONMENT "${A_ENVIRONMENT}")
endfunction()
