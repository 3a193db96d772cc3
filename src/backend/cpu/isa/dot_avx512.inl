// Products of byte pairs by vpmaddubsw, for dot_pairs.inl.
constexpr int kRowsTogether = 4;          // with the codes in registers
constexpr int kRowsTogetherUnpacked = 8;  // with the codes in memory
constexpr bool kRaisesCodes = false;

HC_INLINE Ints pair_products(Ints codes, const int8_t* quad) {
  int32_t x;
  memcpy(&x, quad, 4);
  return {_mm512_maddubs_epi16(codes.a, _mm512_set1_epi32(x))};
}
HC_INLINE Ints add_words(Ints x, Ints y) { return {_mm512_add_epi16(x.a, y.a)}; }
HC_INLINE Ints scaled_pairs(Ints x, int16_t factor) { return {_mm512_madd_epi16(x.a, _mm512_set1_epi16(factor))}; }
