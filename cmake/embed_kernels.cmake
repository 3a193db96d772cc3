# hc_embed_kernels(output files...): a C++ source with the text of the files, as backend/metal/apple/kernel_text.h
# declares it. Paths are relative to the project's folder. Written again when a file changes.
function(hc_embed_kernels output)
  set(text "// Written by cmake/embed_kernels.cmake.\n#include \"backend/metal/apple/kernel_text.h\"\n\n"
    "namespace honeycrisp::backend::metal {\nnamespace {\n\nconstexpr EmbeddedFile kFiles[] = {\n")
  string(JOIN "" text ${text})
  foreach(file ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} content)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${file})
    string(APPEND text "{\"${path}\",\n R\"hcmsl(${content})hcmsl\"},\n")
  endforeach()
  string(APPEND text "};\n\n}  // namespace\n\nstd::span<const EmbeddedFile> embedded_files() { return kFiles; }\n\n"
    "}  // namespace honeycrisp::backend::metal\n")
  file(CONFIGURE OUTPUT ${output} CONTENT "@text@" @ONLY)
endfunction()
