// Products of bytes by vpdpbusd on 256 bits, for dot_vnni.inl.
constexpr int kRowsTogether = 2;          // with the codes in registers
constexpr int kRowsTogetherUnpacked = 2;  // with the codes in memory
constexpr bool kRaisesCodes = true;       // to an offset of 128, when they are unpacked

HC_INLINE __m256i plus_products(__m256i sum, __m256i codes, __m256i quads) {
#ifdef __AVXVNNI__
  return _mm256_dpbusd_avx_epi32(sum, codes, quads);
#else  // the same in AVX-512's encoding: how the tests run this file on machines that have only that
  return _mm256_dpbusd_epi32(sum, codes, quads);
#endif
}
HC_INLINE __m256i plus_word_products(__m256i sum, __m256i x, __m256i y) {
#ifdef __AVXVNNI__
  return _mm256_dpwssd_avx_epi32(sum, x, y);
#else
  return _mm256_dpwssd_epi32(sum, x, y);
#endif
}
HC_INLINE void add_products(Ints& sum, Ints codes, const int8_t* quad) {
  int32_t x;
  memcpy(&x, quad, 4);
  const __m256i q = _mm256_set1_epi32(x);
  sum = {plus_products(sum.a, codes.a, q), plus_products(sum.b, codes.b, q)};
}
HC_INLINE Ints add_low_words(Ints sum, Ints x, int16_t factor) {
  const __m256i f = _mm256_set1_epi32(uint16_t(factor));
  return {plus_word_products(sum.a, x.a, f), plus_word_products(sum.b, x.b, f)};
}
