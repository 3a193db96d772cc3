# hc_metal_kernels(name files...): makes of .metal files the kernel library `name` of the software Metal device, twice:
# bin/metal/<name>.so, compiled to be fast, and bin/metal/<name>.checked.so, which reports every access to memory; and adds
# the strict check of each file as a test. The libraries are loaded, not linked: the fast and the checked instance of one
# template never meet in a linker, instrumentation stays out of our own code, and a changed kernel (or a mutant of one)
# needs no relinking. Without HONEYCRISP_TESTS the checked library is made on demand only: --target
# hc_metal_<name>_checked. The same flags for whoever compiles kernels elsewhere: HC_METAL_{COMMON,FAST,CHECKED}_FLAGS.

set(HC_METAL_SOFT_DIR ${PROJECT_SOURCE_DIR}/src/backend/metal/soft)
set(HC_METAL_COMMON_FLAGS
  -std=c++20 -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -fno-threadsafe-statics -w
  # Nothing fused or reordered; half rounds at each operation. No red zone: switching fibers pushes there.
  -ffp-contract=off -fno-fast-math -mno-red-zone -I${HC_METAL_SOFT_DIR}/shim -I${PROJECT_SOURCE_DIR}/src)
set(HC_METAL_FAST_FLAGS -O3 -g1 -march=x86-64-v3)
# No vectors wider than 16 bytes and none made of several accesses: each access is to be seen as it was written.
# Uninitialised variables of a thread hold a pattern: floats near -1.7e38. DWARF 4, because addr2line 2.40 mistakes some
# file numbers of version 5.
set(HC_METAL_CHECKED_FLAGS -O1 -gdwarf-4 -march=x86-64-v2 -mfma -mf16c -DSOFT_CHECKED -fsanitize=thread -fsanitize=bounds,alignment
  -ftrivial-auto-var-init=pattern)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND HC_METAL_COMMON_FLAGS -fexcess-precision=16)
  list(APPEND HC_METAL_CHECKED_FLAGS -fno-tree-vectorize -fno-tree-slp-vectorize --param=tsan-instrument-func-entry-exit=0)
else()
  list(APPEND HC_METAL_COMMON_FLAGS "SHELL:-Xclang -ffloat16-excess-precision=none")
  list(APPEND HC_METAL_CHECKED_FLAGS -fno-vectorize -fno-slp-vectorize "SHELL:-mllvm -tsan-instrument-func-entry-exit=0"
    "SHELL:-mllvm -tsan-instrument-read-before-write=1")
endif()

function(hc_metal_kernels name)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/metal_${name})
  file(MAKE_DIRECTORY ${generated})
  set(units "")
  set(sources "")
  foreach(file ${ARGN})
    get_filename_component(path ${file} ABSOLUTE)
    get_filename_component(stem ${file} NAME_WE)
    string(MAKE_C_IDENTIFIER ${stem} symbol)
    string(APPEND units "SOFT_UNIT(${symbol})")
    set(unit ${generated}/${stem}.cpp)
    get_filename_component(folder ${path} DIRECTORY)
    file(GLOB included CONFIGURE_DEPENDS ${folder}/*.h)  # a quoted include becomes part of the unit
    add_custom_command(OUTPUT ${unit} COMMAND msl_scan host ${path} ${unit}
      DEPENDS ${path} ${included} ${HC_METAL_SHARED_HEADERS} msl_scan VERBATIM)
    list(APPEND sources ${unit})
    if(HONEYCRISP_TESTS)
      hc_metal_strict_test(${path})
    endif()
  endforeach()
  foreach(variant FAST CHECKED)
    string(TOLOWER "${variant}" lower)
    set(target hc_metal_${name}_${lower})
    add_library(${target} MODULE ${sources})
    # its description is not instrumented
    add_library(${target}_table OBJECT ${HC_METAL_SOFT_DIR}/module.cpp)
    set_target_properties(${target}_table PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_include_directories(${target}_table PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(${target}_table PRIVATE "SOFT_UNITS=${units}" $<$<STREQUAL:${variant},CHECKED>:SOFT_CHECKED>)
    target_compile_options(${target}_table PRIVATE -fvisibility=hidden -mno-red-zone)
    target_link_libraries(${target} PRIVATE ${target}_table)
    target_compile_options(${target} PRIVATE ${HC_METAL_COMMON_FLAGS} ${HC_METAL_${variant}_FLAGS})
    set_target_properties(${target} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/metal
      OUTPUT_NAME ${name}$<$<STREQUAL:${variant},CHECKED>:.checked>)
  endforeach()
  add_custom_target(hc_metal_${name} DEPENDS hc_metal_${name}_fast)
  if(HONEYCRISP_TESTS)
    add_dependencies(hc_metal_${name} hc_metal_${name}_checked)
  else()
    set_target_properties(hc_metal_${name}_checked hc_metal_${name}_checked_table PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# The strict check of one file as a test. Any clang from 14 on will do, whatever compiles the rest.
find_program(HONEYCRISP_METAL_CLANG NAMES clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 clang)
find_package(Python3 COMPONENTS Interpreter)
if(NOT HONEYCRISP_METAL_CLANG OR NOT Python3_EXECUTABLE)
  message(WARNING "Metal kernels: no strict check, because clang or python3 is missing (scripts/dependencies.sh test)")
endif()
function(hc_metal_strict_test path)
  if(HONEYCRISP_METAL_CLANG AND Python3_EXECUTABLE)
    get_filename_component(stem ${path} NAME_WE)
    add_test(NAME metal_strict_${stem} COMMAND ${Python3_EXECUTABLE} ${HC_METAL_SOFT_DIR}/strict/strict_check.py
      --scan $<TARGET_FILE:msl_scan> --clang ${HONEYCRISP_METAL_CLANG} ${path})
    set_tests_properties(metal_strict_${stem} PROPERTIES LABELS "quick;program" TIMEOUT 120)
  else()  # in ctest's summary as not run
    add_test(NAME metal_strict_${stem} COMMAND ${CMAKE_COMMAND} -E false)
    set_tests_properties(metal_strict_${stem} PROPERTIES LABELS "quick;program" DISABLED TRUE)
  endif()
endfunction()
