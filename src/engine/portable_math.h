// exp() that gives the same bits everywhere. The C library's differs in the last place between platforms and
// versions, which is enough to choose another token. Needs IEEE doubles and no contraction (-ffp-contract=off).
#pragma once

#include <bit>
#include <cstdint>

namespace honeycrisp::engine {

/// e^x for x ≤ 0, relative error below 1e-15; 0 below -708 (where subnormals would begin). NaN is not expected.
inline double portable_exp(double x) {
  constexpr double kLog2E = 1.4426950408889634074;
  // ln 2 in two parts; the high one has 21 trailing zero bits, so that n · high is exact for |n| ≤ 2^20.
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  // Adding and subtracting 1.5 · 2^52 rounds to the nearest integer, which is left in the low bits of the sum.
  constexpr double kRound = 6755399441055744.0;
  const double t = (x < -708.0 ? -708.0 : x) * kLog2E + kRound;
  const double n = t - kRound;
  const double clamped = x < -708.0 ? -708.0 : x;
  const double r = (clamped - n * kLn2High) - n * kLn2Low;  // |r| ≤ ln 2 / 2
  // Taylor's series to r^13 / 13!: the rest is below 4e-18.
  constexpr double kInverseFactorials[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
      1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
  double sum = 0;
  for (const double c : kInverseFactorials) sum = sum * r + c;
  const uint64_t exponent = std::bit_cast<uint64_t>(t) << 52;  // n, two's complement, at the exponent's place
  const double power = std::bit_cast<double>(exponent + (uint64_t(1023) << 52));
  return x < -708.0 ? 0.0 : sum * power;
}

}  // namespace honeycrisp::engine
