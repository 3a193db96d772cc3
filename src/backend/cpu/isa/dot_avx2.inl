// Integer dot products of a tile by vpmaddubsw: the 7-bit planes keep its 16-bit sums from saturating.
template <class Format, int kQuads>
HC_INLINE Ints dot(const uint8_t (*tile)[16][4], const ActivationGroup& x, int first) {
  const __m256i ones = _mm256_set1_epi16(1), weight_of_hi = _mm256_set1_epi16(128);
  const auto codes = [&](int g, int part) __attribute__((always_inline)) { return load_bytes(&tile[g][8 * part][0]); };
  if constexpr (kFits16<Format, kQuads>) {
    __m256i hi_a = _mm256_setzero_si256(), hi_b = hi_a, lo_a = hi_a, lo_b = hi_a;
#pragma GCC unroll 8
    for (int g = first; g < first + kQuads; ++g) {
      const __m256i hi = _mm256_set1_epi32(quad(x.hi + 4 * g)), lo = _mm256_set1_epi32(quad(x.lo + 4 * g));
      const __m256i a = codes(g, 0), b = codes(g, 1);
      hi_a = _mm256_add_epi16(hi_a, _mm256_maddubs_epi16(a, hi));
      lo_a = _mm256_add_epi16(lo_a, _mm256_maddubs_epi16(a, lo));
      hi_b = _mm256_add_epi16(hi_b, _mm256_maddubs_epi16(b, hi));
      lo_b = _mm256_add_epi16(lo_b, _mm256_maddubs_epi16(b, lo));
    }
    return {_mm256_add_epi32(_mm256_madd_epi16(hi_a, weight_of_hi), _mm256_madd_epi16(lo_a, ones)),
            _mm256_add_epi32(_mm256_madd_epi16(hi_b, weight_of_hi), _mm256_madd_epi16(lo_b, ones))};
  } else {
    Ints r = broadcast_int(0);
#pragma GCC unroll 8
    for (int g = first; g < first + kQuads; ++g) {
      const __m256i hi = _mm256_set1_epi32(quad(x.hi + 4 * g)), lo = _mm256_set1_epi32(quad(x.lo + 4 * g));
      const __m256i a = codes(g, 0), b = codes(g, 1);
      r.a = _mm256_add_epi32(r.a, _mm256_madd_epi16(_mm256_maddubs_epi16(a, hi), weight_of_hi));
      r.a = _mm256_add_epi32(r.a, _mm256_madd_epi16(_mm256_maddubs_epi16(a, lo), ones));
      r.b = _mm256_add_epi32(r.b, _mm256_madd_epi16(_mm256_maddubs_epi16(b, hi), weight_of_hi));
      r.b = _mm256_add_epi32(r.b, _mm256_madd_epi16(_mm256_maddubs_epi16(b, lo), ones));
    }
    return r;
  }
}
