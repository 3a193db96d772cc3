// Each mutation is compiled as a checked library of its own and run through its case on the checking device.
#include "mutations.h"

#include "backend/metal/soft/scan/scanner.h"
#include "cases.h"
#include "project_cases.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <regex>

namespace honeycrisp::backend::metal::soft::testing {
namespace {

namespace fs = std::filesystem;

/// Few formats, so that a mutant takes seconds to compile; project_cases() use no others. Lines stay where they are.
std::string with_few_formats(const std::string& text) {
  static const std::regex row(R"(\n  X\(\d+, (?!F32\)|Q4_0\)|Q4_K\)|NVFP4\))\w+\) *\\)");
  return std::regex_replace(text, row, "\n\\");
}

const std::vector<Mutation>& all_mutations() {
  static const std::vector<Mutation> all = [] {
    std::vector<Mutation> list = mutations();
    list.insert(list.end(), project_mutations().begin(), project_mutations().end());
    return list;
  }();
  return all;
}

/// Compiles kernels as hc_metal_kernels() does its checked variant. The path of the library.
std::string build_checked(const fs::path& folder, const std::string& text, const fs::path& file) {
  const std::string symbol = unit_symbol(file);
  const auto unit = host_unit(text, file.string(), symbol);
  EXPECT_TRUE(unit) << unit.error().message;
  if (!unit) return "";
  std::ofstream(folder / "unit.cpp") << *unit;
  const auto compile = [&](const std::string& flags, const std::string& source, const char* object) {
    const std::string command =
        HC_METAL_COMPILER " " + flags + " -c '" + source + "' -o '" + (folder / object).string() + "'";
    return std::system(command.c_str()) == 0;
  };
  const bool ok =
      compile(HC_METAL_FLAGS, (folder / "unit.cpp").string(), "unit.o") &&
      compile(HC_METAL_TABLE_FLAGS " '-DSOFT_UNITS=SOFT_UNIT(" + symbol + ")'", HC_METAL_TABLE, "table.o") &&
      std::system((HC_METAL_COMPILER " -shared '" + (folder / "unit.o").string() + "' '" +
                   (folder / "table.o").string() + "' -o '" + (folder / "mutant.so").string() + "'")
                      .c_str()) == 0;
  EXPECT_TRUE(ok) << "the mutant does not compile";
  return ok ? (folder / "mutant.so").string() : "";
}

class Mutations : public ::testing::TestWithParam<size_t> {
 protected:
  static void TearDownTestSuite() {
    std::printf("kernels: %zu mutations: %zu reported, %zu seen in the result, %zu missed\n", tried_, reported_, shown_,
                tried_ - reported_ - shown_);
  }
  const test_support::TemporaryFolder temporary;
  const fs::path folder = temporary.path();
  static inline size_t tried_ = 0, reported_ = 0, shown_ = 0;
};

TEST_P(Mutations, reported) {
  const Mutation& m = all_mutations()[GetParam()];
  ++tried_;
  const Case* c = nullptr;
  const std::vector<Case>* found = nullptr;
  for (const auto* set : {&cases(), &op_cases(), &project_cases()})
    for (const Case& k : *set)
      if (k.name == std::string(m.test_case)) {
        c = &k;
        found = set;
      }
  ASSERT_NE(c, nullptr);
  const bool of_backend = found != &cases();
  const fs::path folder_of_kernels = of_backend ? HC_METAL_BACKEND_KERNELS : HC_METAL_TEST_KERNELS;
  const fs::path file = folder_of_kernels / (std::string(c->file) + ".metal");
  std::string text = expand_includes(file).value();
  size_t at = std::string::npos;
  for (int n = 0; n < m.occurrence; ++n) {
    at = text.find(m.find, at == std::string::npos ? 0 : at + 1);
    ASSERT_NE(at, std::string::npos) << "the text to be replaced is no longer in the file: " << m.find;
  }
  text.replace(at, std::string(m.find).size(), m.replacement);
  if (found == &project_cases()) text = with_few_formats(text);
  const std::string path = build_checked(folder, text, file);
  ASSERT_NE(path, "");

  const auto device = Device::create({.check = true}).value();
  const auto library = device->open_library(path);
  ASSERT_TRUE(library) << library.error().message;
  const std::string wrong = c->run(*device, *library);
  const std::vector<Report> reports = device->reports();
  std::string all;
  for (const Report& r : reports) all += to_string(r) + "\n";
  if (!m.fault) {
    EXPECT_NE(wrong, "") << "neither a report nor a wrong result";
    shown_ += wrong.empty() ? 0 : 1;
    return;
  }
  const auto r = std::find_if(reports.begin(), reports.end(), [&](const Report& k) { return k.fault == *m.fault; });
  ASSERT_NE(r, reports.end()) << "no " << to_string(*m.fault) << " among the reports:\n" << all << "result: " << wrong;
  ++reported_;
  // the reader is told where: kernel, file, line
  EXPECT_NE(r->place.kernel, "");
  if (*m.fault != Fault::kThreadgroupMemory) {
    EXPECT_TRUE(r->place.file == file.filename().string() || fs::exists(folder_of_kernels / r->place.file))
        << to_string(*r);
    EXPECT_GT(r->place.line, 0);
  }
}
INSTANTIATE_TEST_SUITE_P(All, Mutations, ::testing::Range<size_t>(0, all_mutations().size()), [](const auto& p) {
  return std::string(all_mutations()[p.param].test_case) + "_" + all_mutations()[p.param].name;
});

}  // namespace
}  // namespace honeycrisp::backend::metal::soft::testing
