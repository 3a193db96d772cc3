// A number that differs in every process, for hash tables whose keys come from files: nobody can prepare collisions.
#pragma once

#include <cstdint>

namespace honeycrisp {

uint64_t hash_seed();

}  // namespace honeycrisp
