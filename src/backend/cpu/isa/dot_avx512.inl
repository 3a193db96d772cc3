// Integer dot products of a tile: vpdpbusd where the file is compiled with VNNI, else vpmaddubsw as in dot_avx2.inl.
template <class Format, int kQuads>
HC_INLINE Ints dot(const uint8_t (*tile)[16][4], const ActivationGroup& x, int first) {
  const auto codes = [&](int g) __attribute__((always_inline)) { return _mm512_load_si512(&tile[g][0][0]); };
#ifdef __AVX512VNNI__
  __m512i sum_hi = _mm512_setzero_si512(), sum_lo = sum_hi;
#pragma GCC unroll 8
  for (int g = first; g < first + kQuads; ++g) {
    const __m512i a = codes(g);
    sum_hi = _mm512_dpbusd_epi32(sum_hi, a, _mm512_set1_epi32(quad(x.hi + 4 * g)));
    sum_lo = _mm512_dpbusd_epi32(sum_lo, a, _mm512_set1_epi32(quad(x.lo + 4 * g)));
  }
  return {_mm512_add_epi32(_mm512_slli_epi32(sum_hi, 7), sum_lo)};
#else
  const __m512i ones = _mm512_set1_epi16(1), weight_of_hi = _mm512_set1_epi16(128);
  if constexpr (kFits16<Format, kQuads>) {
    __m512i sum_hi = _mm512_setzero_si512(), sum_lo = sum_hi;
#pragma GCC unroll 8
    for (int g = first; g < first + kQuads; ++g) {
      const __m512i a = codes(g);
      sum_hi = _mm512_add_epi16(sum_hi, _mm512_maddubs_epi16(a, _mm512_set1_epi32(quad(x.hi + 4 * g))));
      sum_lo = _mm512_add_epi16(sum_lo, _mm512_maddubs_epi16(a, _mm512_set1_epi32(quad(x.lo + 4 * g))));
    }
    return {_mm512_add_epi32(_mm512_madd_epi16(sum_hi, weight_of_hi), _mm512_madd_epi16(sum_lo, ones))};
  } else {
    Ints r = broadcast_int(0);
#pragma GCC unroll 8
    for (int g = first; g < first + kQuads; ++g) {
      const __m512i a = codes(g);
      const __m512i hi = _mm512_maddubs_epi16(a, _mm512_set1_epi32(quad(x.hi + 4 * g)));
      const __m512i lo = _mm512_maddubs_epi16(a, _mm512_set1_epi32(quad(x.lo + 4 * g)));
      r.a = _mm512_add_epi32(r.a, _mm512_madd_epi16(hi, weight_of_hi));
      r.a = _mm512_add_epi32(r.a, _mm512_madd_epi16(lo, ones));
    }
    return r;
  }
#endif
}
