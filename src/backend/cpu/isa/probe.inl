// What this instruction set can do at most: a stream of loads, and integer multiply-adds on registers alone.

/// Σ of the bytes' 64-bit words, n a multiple of 256: as fast as memory gives them.
static uint64_t read_stream(const uint8_t* p, size_t n) {
  typedef uint64_t Words __attribute__((vector_size(64), aligned(64)));
  Words sums[4] = {};
  for (size_t i = 0; i < n; i += 256)
    for (int j = 0; j < 4; ++j) sums[j] += *reinterpret_cast<const Words*>(p + i + 64 * j);
  const Words sum = sums[0] + sums[1] + sums[2] + sums[3];
  uint64_t total = 0;
  for (int j = 0; j < 8; ++j) total += sum[j];
  return total;
}

#if defined(__AVX512VNNI__)
typedef __m512i PeakSum;
constexpr uint64_t kPeakMultiplyAdds = 64;  // of a step
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) { return _mm512_dpbusd_epi32(sum, a, b); }
#elif defined(__AVX512BW__)
typedef __m512i PeakSum;
constexpr uint64_t kPeakMultiplyAdds = 64;
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) {
  return _mm512_add_epi16(sum, _mm512_maddubs_epi16(a, b));
}
#elif defined(__AVX2__)
typedef __m256i PeakSum;
constexpr uint64_t kPeakMultiplyAdds = 32;
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) {
  return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
}
#else
typedef int32_t PeakSum __attribute__((vector_size(16)));
constexpr uint64_t kPeakMultiplyAdds = 4;
static inline PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) { return sum + a * b; }
#endif

constexpr int kPeakChains = 12;  // enough to hide the latency, few enough for sixteen registers

/// `rounds` of kPeakChains independent steps; gives how many multiply-adds that was.
static uint64_t multiply_peak(uint64_t rounds, uint64_t* kept) {
  PeakSum sums[kPeakChains], a, b;
  memset(sums, 0, sizeof sums);
  memset(&a, 1, sizeof a);
  memset(&b, 1, sizeof b);
  for (uint64_t round = 0; round < rounds; ++round) {
    // Tells the compiler that the operands have changed, or it would multiply once for all rounds.
#if defined(__AVX512F__)
    asm volatile("" : "+v"(a), "+v"(b));
#elif defined(__AVX2__)
    asm volatile("" : "+x"(a), "+x"(b));
#else
    asm volatile("" : "+m"(a), "+m"(b));
#endif
#pragma GCC unroll 16
    for (int i = 0; i < kPeakChains; ++i) sums[i] = peak_step(sums[i], a, b);
  }
  for (int i = 0; i < kPeakChains; ++i) {
    uint64_t word;
    memcpy(&word, &sums[i], sizeof word);
    *kept += word;
  }
  return rounds * kPeakChains * kPeakMultiplyAdds;
}
