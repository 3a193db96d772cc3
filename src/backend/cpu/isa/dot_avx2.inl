// Products of byte pairs by vpmaddubsw, for dot_pairs.inl.
constexpr int kRowsTogether = 2;          // with the codes in registers
constexpr int kRowsTogetherUnpacked = 2;  // with the codes in memory
constexpr bool kRaisesCodes = false;

HC_INLINE Ints pair_products(Ints codes, const int8_t* quad) {
  int32_t x;
  memcpy(&x, quad, 4);
  const __m256i q = _mm256_set1_epi32(x);
  return {_mm256_maddubs_epi16(codes.a, q), _mm256_maddubs_epi16(codes.b, q)};
}
HC_INLINE Ints add_words(Ints x, Ints y) { return {_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)}; }
HC_INLINE Ints scaled_pairs(Ints x, int16_t factor) {
  const __m256i f = _mm256_set1_epi16(factor);
  return {_mm256_madd_epi16(x.a, f), _mm256_madd_epi16(x.b, f)};
}
