// Architectures without bodies of their own run the scalar one.
#include "backend/cpu/isa/isa.h"

namespace honeycrisp::backend::cpu::detail {

std::vector<const Isa*> available_vector_isas() { return {}; }

}  // namespace honeycrisp::backend::cpu::detail
