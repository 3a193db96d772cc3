// What the tests of the check share: a fault to put into a valid program, and that it is refused by name.
#pragma once

#include "program/check.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ostream>

namespace honeycrisp::program::testing {

struct Fault {
  const char* name;
  const char* words;  // part of the message
  std::function<void(Program&)> make;
};
inline void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

inline std::string fault_name(const ::testing::TestParamInfo<Fault>& tested) { return tested.param.name; }

inline void expect_refused_by_name(Program program, const Fault& fault) {
  fault.make(program);
  const Result<void> checked = check(program);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(checked.error().message, ::testing::HasSubstr(fault.words));
}

}  // namespace honeycrisp::program::testing
