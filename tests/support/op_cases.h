// One small program per variant of an op: the case table of every backend's op tests.
#pragma once

#include "support/tiny_program.h"

#include <functional>
#include <string>
#include <vector>

namespace honeycrisp::test_support {

struct OpCase {
  std::string name;
  std::function<void(TinyProgram&)> add;  // the case's ops
  uint32_t positions = 24;                // enough to meet the case's edges
  uint32_t width = 96;                    // of buffer 0

  TinyProgram build(bool all_f32 = false) const {
    TinyProgram t(width, all_f32);
    add(t);
    t.finish();
    return t;
  }
};

const std::vector<OpCase>& op_cases();

}  // namespace honeycrisp::test_support
