// Single edits of kernels that must not pass the checking device unnoticed. Data: kernels to come add rows.
#pragma once

#include "backend/metal/soft/report.h"

#include <optional>
#include <vector>

namespace honeycrisp::backend::metal::soft::testing {

struct Mutation {
  const char* name;
  const char* test_case;  // of cases.h, which says the file too
  const char* find;       // in the file's text ...
  int occurrence;         // ... the how-manieth, from 1
  const char* replacement;
  std::optional<Fault> fault;  // that must be reported; none: nothing but a wrong result shows it
};
const std::vector<Mutation>& mutations();          // of the test kernels
const std::vector<Mutation>& project_mutations();  // of the kernels of Project, Embed and Logits

}  // namespace honeycrisp::backend::metal::soft::testing
