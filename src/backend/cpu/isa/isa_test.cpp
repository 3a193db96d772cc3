// The choice of an instruction set.
#include "backend/cpu/isa/isa.h"

#include "backend/cpu/packing.h"

#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace honeycrisp::backend::cpu {
namespace {

TEST(Isa, scalar_is_everywhere_and_last) {
  const auto isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_STREQ(isas.back()->name, "scalar");
}

TEST(Isa, empty_name_is_the_best_one) { EXPECT_EQ(find_isa("").value(), available_isas().front()); }

TEST(Isa, every_available_one_is_found_by_name) {
  for (const Isa* isa : available_isas()) EXPECT_EQ(find_isa(isa->name).value(), isa);
}

TEST(Isa, unknown_name_lists_what_there_is) {
  const auto isa = find_isa("sse9");
  ASSERT_FALSE(isa.has_value());
  EXPECT_NE(isa.error().message.find("sse9"), std::string::npos);
  for (const Isa* there : available_isas()) EXPECT_NE(isa.error().message.find(there->name), std::string::npos);
  std::printf("%s\n", isa.error().message.c_str());  // what isa_of_* of CMakeLists.txt look for
}

TEST(Isa, environment_variable_chooses) {
  ASSERT_EQ(setenv("HONEYCRISP_ISA", "scalar", 1), 0);
  EXPECT_STREQ(chosen_isa().value()->name, "scalar");
  ASSERT_EQ(setenv("HONEYCRISP_ISA", "nonsense", 1), 0);
  const auto isa = chosen_isa();
  ASSERT_FALSE(isa.has_value());
  EXPECT_NE(isa.error().message.find("HONEYCRISP_ISA"), std::string::npos);
  unsetenv("HONEYCRISP_ISA");
  EXPECT_EQ(chosen_isa().value(), available_isas().front());
}

TEST(Isa, packed_formats_have_all_of_their_functions_and_no_other_has_any) {
  for (const Isa* isa : available_isas())
    for (const quant::FormatInfo& f : quant::kFormats) {
      const bool floats = multiply_floats_for(*isa, f.format) != nullptr;
      for (Activations a : {Activations::k14Bit, Activations::k8Bit})
        EXPECT_EQ(multiply_panels_for(integers_of(*isa, a), f.format) != nullptr, is_packed(f.format) && !floats)
            << f.name;
      EXPECT_TRUE(!floats || is_packed(f.format)) << f.name;
      EXPECT_EQ(unpack_for(*isa, f.format) != nullptr, is_packed(f.format)) << f.name;
    }
  EXPECT_NE(multiply_floats_for(*available_isas().front(), quant::Format::kF32), nullptr);  // what the others use
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
