#include "backend/metal/soft/scan/scanner.h"

#include "support/temporary_folder.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace honeycrisp::backend::metal::soft {
namespace {

/// The line of `text` that contains `what`, from 1; 0: none does.
size_t line_of(const std::string& text, const std::string& what) {
  const size_t at = text.find(what);
  return at == std::string::npos ? 0 : size_t(std::count(text.begin(), text.begin() + long(at), '\n')) + 1;
}

const std::string kText = R"(#include <metal_stdlib>
using namespace metal;
constant bool kFlag [[function_constant(0)]];
constant uint kRows [[function_constant(7)]];
constant uint kUsed = kFlag ? kRows : 4; // threadgroup float not_code[3];
constant float kTable[2] = {1.0f, 2.0f};
#define NOT_CODE threadgroup float not_code[3];
template <typename T>
kernel void copy(device const T *from [[buffer(0)]],
                 device T *to [[buffer(1), function_constant(kFlag)]],
                 constant uint &count [[buffer(2)]],
                 threadgroup float *scratch [[threadgroup(0)]],
                 uint i [[thread_position_in_grid]]) {
  threadgroup float
      tile[4][8 * 2];
  threadgroup const float *p = scratch;
  to[i] = from[i]; const char *s = "threadgroup float no[1];"; (void)p; (void)s;
}
template [[host_name("copy_float")]] kernel decltype(copy<float>) copy<float>;
[[kernel]] void plain(device float *x [[buffer(0)]]) { x[0] = 1.0f; }
)";

TEST(MslScanner, host_unit_keeps_lines_and_describes_kernels) {
  const std::string unit = host_unit(kText, "a.metal", "a").value();
  const size_t begin = line_of(unit, "#line 1 \"a.metal\"") + 1;
  for (const char* here : {"using namespace metal;", "kTable[2]", "device const T", "to[i] = from[i]", "void plain"})
    EXPECT_EQ(line_of(unit, here) - begin + 1, line_of(kText, here)) << here;
  EXPECT_NE(unit.find("SOFT_FUNCTION_CONSTANT bool soft_defined_kFlag; SOFT_FUNCTION_CONSTANT bool kFlag"),
            std::string::npos);
  EXPECT_NE(unit.find("kUsed = (kFlag ? kRows : 4);"), std::string::npos);
  EXPECT_NE(unit.find("threadgroup_variable<float [4][8 * 2]>(0)"), std::string::npos);
  EXPECT_NE(unit.find("[[soft_threadgroup(0)]]"), std::string::npos);
  EXPECT_EQ(unit.find("host_name"), std::string::npos);
  EXPECT_NE(unit.find("{\"copy_float\", "), std::string::npos);
  EXPECT_NE(unit.find("{\"plain\", "), std::string::npos);
  EXPECT_EQ(unit.find("{\"copy\", "), std::string::npos);
  EXPECT_NE(unit.find("Thunk<&copy<float>, Bound{Attribute::kBuffer, 0}, Bound{Attribute::kBuffer, 1}, "
                      "Bound{Attribute::kConstantBuffer, 2}, "
                      "Bound{Attribute::kThreadgroup, 0}, Bound{Attribute::kThreadPositionInGrid, 0}>"),
            std::string::npos);
  // comments, macros and literals are left alone
  for (const char* left : {"// threadgroup float not_code[3];", "#define NOT_CODE threadgroup float not_code[3];",
                           "\"threadgroup float no[1];\""})
    EXPECT_NE(unit.find(left), std::string::npos) << left;
}

TEST(MslScanner, strict_unit_keeps_lines_and_address_spaces) {
  const std::string unit = strict_unit(kText, "a.metal").value();
  const size_t begin = line_of(unit, "#line 1 \"a.metal\"") + 1;
  EXPECT_EQ(line_of(unit, "void plain") - begin + 1, line_of(kText, "void plain"));
  EXPECT_NE(unit.find("threadgroup float (&tile)[4][8 * 2] = *(threadgroup float (*)[4][8 * 2])0"), std::string::npos);
  EXPECT_NE(unit.find("constant bool kFlag = 0;"), std::string::npos);
  EXPECT_NE(unit.find("constant uint kUsed = kFlag ? kRows : 4;"), std::string::npos);
}

TEST(MslScanner, faults_name_file_line_and_reason) {
  struct Fault {
    const char *text, *message;
  };
  for (const Fault& f : std::initializer_list<Fault>{
           {"\nkernel void k(device float *x [[buffer(0)]], int i [[thread_index_in_simdgroup]]) {}\n",
            "b.metal:2: i is thread_index_in_simdgroup and must be ushort or uint, not int"},
           {"kernel void k(\n device float x [[buffer(0)]]) {}\n",
            "b.metal:2: x is buffer(0) and must be a pointer or a reference, not device float"},
           {"kernel void k(device float *x [[buffer(0)]]) {\n threadgroup float a[2], b[2];\n}\n",
            "b.metal:2: declare each threadgroup variable by itself"},
           {"template [[host_name(\"k\")]] kernel decltype(f<1>) f<1>;\n",
            "f: no kernel template of this name is in the file"},
           {"kernel void k(device float *x [[buffer(0)]]) {}\nkernel void k(device float *x [[buffer(0)]]) {}\n",
            "line 2: two kernels have the name k"},
       }) {
    const auto unit = host_unit(f.text, "b.metal", "b");
    ASSERT_FALSE(unit) << f.message;
    EXPECT_EQ(unit.error().message, f.message);
  }
}

TEST(MslScanner, any_bytes_are_scanned_without_harm) {
  const std::string pieces[] = {"kernel",
                                " void k(",
                                "[[buffer(0)]]",
                                "threadgroup",
                                " float x[",
                                "constant ",
                                "[[function_constant(",
                                "\"",
                                "/*",
                                "#",
                                "{",
                                "}",
                                "(",
                                ")",
                                "<",
                                ">",
                                "template [[host_name(",
                                "]]",
                                ";",
                                "decltype",
                                "\\",
                                "\n",
                                "0",
                                "="};
  uint32_t random = 1;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += pieces[((random = random * 1664525u + 1013904223u) >> 16) % std::size(pieces)];
    (void)host_unit(text, "c.metal", "c");  // any answer will do
    (void)strict_unit(text, "c.metal");
  }
}

TEST(MslScanner, quoted_includes_are_put_in_place_once) {
  const test_support::TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  temporary.write("a.metal", "#include <metal_stdlib>\n#include \"b.h\"\n#include \"b.h\"\nint after;\n");
  temporary.write("b.h", "#pragma once\nint inside;\n");
  const std::string text = expand_includes(folder + "/a.metal").value();
  EXPECT_EQ(text, "#line 1 \"" + folder + "/a.metal\"\n#include <metal_stdlib>\n#line 1 \"" + folder +
                      "/b.h\"\n\nint inside;\n#line 3 \"" + folder + "/a.metal\"\n#line 4 \"" + folder +
                      "/a.metal\"\nint after;\n");
  EXPECT_FALSE(expand_includes(folder + "/none.metal"));
}

}  // namespace
}  // namespace honeycrisp::backend::metal::soft
