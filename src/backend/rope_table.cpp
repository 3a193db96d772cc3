#include "backend/rope_table.h"

#include <cmath>

namespace honeycrisp::backend {

std::vector<float> make_rope_table(const program::Rope& rope, uint32_t n_positions) {
  std::vector<float> table;
  table.reserve(size_t{n_positions} * rope.inverse_frequency.size() * 2);
  for (uint32_t position = 0; position < n_positions; ++position)
    for (double frequency : rope.inverse_frequency) {
      const double angle = double(position) * frequency;
      table.push_back(float(rope.magnitude * std::cos(angle)));
      table.push_back(float(rope.magnitude * std::sin(angle)));
    }
  return table;
}

}  // namespace honeycrisp::backend
