#include "cli/bench/bench.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace honeycrisp::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// One test of a step that reads 1 GB and computes 10 G operations in a second, where all is known.
BenchReport make_report() {
  BenchReport report;
  report.info.path = "model.gguf";
  report.info.quantization = "Q4_K (71 %), Q6_K (29 %)";
  report.info.backend = "cpu: a processor, avx512vnni, 2 threads";
  report.arithmetic = "int8, avx512vnni";
  BenchTest test;
  test.name = "tg128x8 @ d4096";
  test.tokens_per_second.values = {1, 3, 2};
  test.bytes_per_step = test.bytes_per_second = 1e9;
  test.operations_per_step = test.operations_per_second = 1e10;
  test.read_ceiling.values = {2e9};
  test.operation_ceiling.values = {1e11};
  test.ops = {{.op = "ffn_gate_up",
               .kernel = "project.q4_k+q6_k.avx512vnni",
               .steps = 28,
               .seconds = 0.5,
               .bytes = 5e8,
               .operations = 1e10},
              {.op = "attend", .kernel = "attend.avx512vnni", .steps = 28, .seconds = 0.5}};
  report.tests.push_back(test);
  return report;
}

TEST(BenchText, fits_a_terminal_and_names_what_limits) {
  const std::string text = bench_text(make_report());
  EXPECT_THAT(text, HasSubstr(" operations\n  1.0 of 2.0 GB/s; 10 of 100 G/s (int8, avx512vnni); memory limits\n"));
  EXPECT_THAT(text, HasSubstr("  ffn_gate_up ×28  project.q4_k+q6_k  500.00 ms   50 %   1.0  50 %  20.0  20 %\n"));
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (uint8_t(c) & 0xc0) != 0x80; });
    EXPECT_LE(columns, 80) << line;
  }
}

TEST(BenchText, a_limit_that_is_not_known_is_left_out) {
  for (auto limit : {&BenchTest::read_ceiling, &BenchTest::operation_ceiling}) {
    BenchReport report = make_report();
    (report.tests[0].*limit).values.clear();
    const std::string text = bench_text(report);
    EXPECT_THAT(text, Not(HasSubstr("inf")));
    EXPECT_THAT(text, Not(HasSubstr("limits")));
    EXPECT_THAT(text, HasSubstr(limit == &BenchTest::read_ceiling ? "\n  10 of 100 G/s" : "\n  1.0 of 2.0 GB/s\n"));
  }
}

TEST(BenchText, load_of_others_is_told_where_it_matters) {
  BenchReport report = make_report();
  EXPECT_THAT(bench_text(report), Not(HasSubstr("Others")));
  EXPECT_THAT(bench_json(report), HasSubstr("\"percent_of_others\":null"));
  report.tests[0].percent_of_others = 4;
  EXPECT_THAT(bench_text(report), Not(HasSubstr("Others")));
  report.tests[0].percent_of_others = 23;
  EXPECT_THAT(bench_text(report), HasSubstr("\nOthers took up to 23 % of the CPUs meanwhile"));
}

}  // namespace
}  // namespace honeycrisp::cli
