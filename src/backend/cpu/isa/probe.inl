// What this instruction set can do at most: a stream of loads, and integer multiply-adds on registers alone.

#if defined(__AVX512F__)
constexpr size_t kReadBytes = 64;  // of a load
#elif defined(__AVX2__)
constexpr size_t kReadBytes = 32;
#else
constexpr size_t kReadBytes = 16;
#endif
typedef uint64_t Words __attribute__((vector_size(kReadBytes), may_alias));

/// Σ of the bytes' 64-bit words, n a multiple of 256: as fast as memory gives them.
static uint64_t read_stream(const uint8_t* p, size_t n) {
  constexpr size_t kLoads = 4;
  Words zero = {}, sums[kLoads] = {zero, zero, zero, zero};
  for (size_t i = 0; i < n; i += kLoads * kReadBytes)
    repeat<int(kLoads)>([&](auto j) __attribute__((always_inline)) {
      sums[j] += *reinterpret_cast<const Words*>(p + i + kReadBytes * j);
    });
  const Words sum = sums[0] + sums[1] + sums[2] + sums[3];
  uint64_t total = 0;
  for (size_t j = 0; j < kReadBytes / 8; ++j) total += sum[j];
  return total;
}

#if defined(__AVX512VNNI__)
typedef __m512i PeakSum;
constexpr uint64_t kPeakMultiplyAdds = 64;  // of a step
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));  // g++ 12 would copy the sum twice around the intrinsic
  return sum;
}
#elif defined(__AVX512BW__)
typedef __m512i PeakSum;
constexpr uint64_t kPeakMultiplyAdds = 64;
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) {
  return _mm512_add_epi16(sum, _mm512_maddubs_epi16(a, b));
}
#elif defined(__AVXVNNI__)
typedef __m256i PeakSum;
constexpr uint64_t kPeakMultiplyAdds = 32;
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  return sum;
}
#elif defined(__AVX2__)
typedef __m256i PeakSum;
constexpr uint64_t kPeakMultiplyAdds = 32;
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) {
  return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
}
#elif defined(HC_NEON)
typedef int32x4_t PeakSum;
#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr uint64_t kPeakMultiplyAdds = 32;
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) {
  return vmmlaq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}
#elif defined(__ARM_FEATURE_DOTPROD)
constexpr uint64_t kPeakMultiplyAdds = 16;
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) {
  return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}
#else
constexpr uint64_t kPeakMultiplyAdds = 8;
HC_INLINE PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) {
  const int8x8_t x = vget_low_s8(vreinterpretq_s8_s32(a)), y = vget_low_s8(vreinterpretq_s8_s32(b));
  return vreinterpretq_s32_s16(vmlal_s8(vreinterpretq_s16_s32(sum), x, y));
}
#endif
#else
typedef int32_t PeakSum __attribute__((vector_size(16)));
constexpr uint64_t kPeakMultiplyAdds = 4;
static inline PeakSum peak_step(PeakSum sum, PeakSum a, PeakSum b) { return sum + a * b; }
#endif

// Of x the compiler does not know that it is the same every time, or it would multiply once for all steps. In place: a
// copy would take a slot of the processor's front end from every multiplication.
#if defined(__AVX512F__)
#define HC_HIDE(x) asm volatile("" : "+v"(x))
#elif defined(__AVX2__)
#define HC_HIDE(x) asm volatile("" : "+x"(x))
#elif defined(HC_NEON)
#define HC_HIDE(x) asm volatile("" : "+w"(x))
#else
#define HC_HIDE(x) asm volatile("" : "+m"(x))
#endif

constexpr int kPeakChains = 12;  // enough to hide the latency, few enough for sixteen registers

/// `rounds` of kPeakChains independent steps; gives how many multiply-adds that was.
static uint64_t multiply_peak(uint64_t rounds, uint64_t* kept) {
  PeakSum zero, a, b;
  memset(&zero, 0, sizeof zero);
  memset(&a, 1, sizeof a);
  memset(&b, 1, sizeof b);
  // Its address must not be taken, or the sums would be stored in every round.
  PeakSum sums[kPeakChains];
  repeat<kPeakChains>([&](auto i) __attribute__((always_inline)) { sums[i] = zero; });
  for (uint64_t round = 0; round < rounds; ++round) {
    repeat<kPeakChains>([&](auto i) __attribute__((always_inline)) {
      HC_HIDE(a);
      sums[i] = peak_step(sums[i], a, b);
    });
  }
  repeat<kPeakChains>([&](auto i) __attribute__((always_inline)) {
    const PeakSum sum = sums[i];
    uint64_t word;
    memcpy(&word, &sum, sizeof word);
    *kept += word;
  });
  return rounds * kPeakChains * kPeakMultiplyAdds;
}
