#include "base/hash_seed.h"

#include <random>

namespace honeycrisp {

uint64_t hash_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return seed;
}

}  // namespace honeycrisp
