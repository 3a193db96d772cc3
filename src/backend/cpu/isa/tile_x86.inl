// Unpacking of a tile for AVX2 and up: 32 codes of each output in a 256-bit register, then 8 × 8 dword transpositions.

// Formats without an overload below go through their plain codes().
template <class Format>
HC_INLINE __m256i codes32(Format, const typename Format::Block& b, uint32_t group) {
  alignas(32) uint8_t codes[kGroup];
  Format::codes(b, group, codes);
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(codes));
}
HC_INLINE __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
HC_INLINE __m256i low_nibbles(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
HC_INLINE __m256i nibbles32(const uint8_t* p) {
  const __m128i x = load128(p);
  return low_nibbles(_mm256_inserti128_si256(_mm256_castsi128_si256(x), _mm_srli_epi16(x, 4), 1));
}
/// Bit i of the 32 at `p` as 16 in byte i.
HC_INLINE __m256i bits_as_16(const uint8_t* p) {
  int32_t bits;
  memcpy(&bits, p, 4);
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(bits), _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i mask = _mm256_set1_epi64x(int64_t(0x8040201008040201));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask), _mm256_set1_epi8(16));
}
HC_INLINE __m256i shift_bytes_right(__m256i x, uint32_t bits) {
  return _mm256_srl_epi16(x, _mm_cvtsi32_si128(int(bits)));  // bits that cross into a byte are masked by the caller
}
HC_INLINE __m256i codes32(FormatQ4_0, const quant::BlockQ4_0& b, uint32_t) { return nibbles32(b.codes); }
HC_INLINE __m256i codes32(FormatQ4_1, const quant::BlockQ4_1& b, uint32_t) { return nibbles32(b.codes); }
HC_INLINE __m256i codes32(FormatQ5_0, const quant::BlockQ5_0& b, uint32_t) {
  return _mm256_or_si256(nibbles32(b.codes), bits_as_16(b.high));
}
HC_INLINE __m256i codes32(FormatQ5_1, const quant::BlockQ5_1& b, uint32_t) {
  return _mm256_or_si256(nibbles32(b.codes), bits_as_16(b.high));
}
HC_INLINE __m256i codes32(FormatQ8_0, const quant::BlockQ8_0& b, uint32_t) {
  return _mm256_xor_si256(load_bytes(b.codes), _mm256_set1_epi8(-128));
}
HC_INLINE __m256i codes32(FormatQ4_K, const quant::BlockQ4_K& b, uint32_t group) {
  return low_nibbles(shift_bytes_right(load_bytes(b.codes + 32 * (group / 2)), 4 * (group % 2)));
}
HC_INLINE __m256i codes32(FormatQ5_K, const quant::BlockQ5_K& b, uint32_t group) {
  const __m256i low = low_nibbles(shift_bytes_right(load_bytes(b.codes + 32 * (group / 2)), 4 * (group % 2)));
  const __m256i bit = _mm256_and_si256(shift_bytes_right(load_bytes(b.high), group), _mm256_set1_epi8(1));
  return _mm256_or_si256(low, _mm256_slli_epi16(bit, 4));
}
HC_INLINE __m256i codes32(FormatQ6_K, const quant::BlockQ6_K& b, uint32_t group) {
  const uint32_t h = group / 4, s = group % 4;
  const __m256i low = low_nibbles(shift_bytes_right(load_bytes(b.codes + 64 * h + 32 * (s % 2)), 4 * (s / 2)));
  const __m256i high = _mm256_and_si256(shift_bytes_right(load_bytes(b.high + 32 * h), 2 * s), _mm256_set1_epi8(3));
  return _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
}
HC_INLINE __m256i look_up32(const int8_t* table, uint32_t offset, __m256i codes) {
  const __m256i values = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(table)), codes);
  return _mm256_add_epi8(values, _mm256_set1_epi8(char(offset)));
}
HC_INLINE __m256i codes32(FormatIQ4_NL, const quant::BlockIQ4_NL& b, uint32_t) {
  return look_up32(kIQ4_NLValues, FormatIQ4_NL::kOffset, nibbles32(b.codes));
}
HC_INLINE __m256i codes32(FormatIQ4_XS, const quant::BlockIQ4_XS& b, uint32_t group) {
  return look_up32(kIQ4_NLValues, FormatIQ4_XS::kOffset, nibbles32(b.codes + 16 * group));
}
HC_INLINE __m256i codes32(FormatMXFP4, const quant::BlockMXFP4& b, uint32_t) {
  return look_up32(kE2M1Values, FormatMXFP4::kOffset, nibbles32(b.codes));
}

/// Dword g of row r goes to out + 64 g, lane r.
HC_INLINE void transpose8(const __m256i* rows, uint8_t* out) {
  const __m256i p0 = _mm256_unpacklo_epi32(rows[0], rows[1]), p1 = _mm256_unpackhi_epi32(rows[0], rows[1]);
  const __m256i p2 = _mm256_unpacklo_epi32(rows[2], rows[3]), p3 = _mm256_unpackhi_epi32(rows[2], rows[3]);
  const __m256i p4 = _mm256_unpacklo_epi32(rows[4], rows[5]), p5 = _mm256_unpackhi_epi32(rows[4], rows[5]);
  const __m256i p6 = _mm256_unpacklo_epi32(rows[6], rows[7]), p7 = _mm256_unpackhi_epi32(rows[6], rows[7]);
  // q: dword g (low half) and g + 4 (high half) of four rows
  const __m256i q0 = _mm256_unpacklo_epi64(p0, p2), q1 = _mm256_unpackhi_epi64(p0, p2);
  const __m256i q2 = _mm256_unpacklo_epi64(p1, p3), q3 = _mm256_unpackhi_epi64(p1, p3);
  const __m256i q4 = _mm256_unpacklo_epi64(p4, p6), q5 = _mm256_unpackhi_epi64(p4, p6);
  const __m256i q6 = _mm256_unpacklo_epi64(p5, p7), q7 = _mm256_unpackhi_epi64(p5, p7);
  const auto put = [&](int g, __m256i x) __attribute__((always_inline)) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + 64 * g), x);
  };
  put(0, _mm256_permute2x128_si256(q0, q4, 0x20));
  put(1, _mm256_permute2x128_si256(q1, q5, 0x20));
  put(2, _mm256_permute2x128_si256(q2, q6, 0x20));
  put(3, _mm256_permute2x128_si256(q3, q7, 0x20));
  put(4, _mm256_permute2x128_si256(q0, q4, 0x31));
  put(5, _mm256_permute2x128_si256(q1, q5, 0x31));
  put(6, _mm256_permute2x128_si256(q2, q6, 0x31));
  put(7, _mm256_permute2x128_si256(q3, q7, 0x31));
}

template <class Format>
HC_INLINE void unpack_codes(const typename Format::Block* const* blocks, uint32_t group, uint8_t (*tile)[16][4]) {
  for (int part = 0; part < 2; ++part) {
    __m256i rows[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r) rows[r] = codes32(Format{}, *blocks[8 * part + r], group);
    transpose8(rows, &tile[0][8 * part][0]);
  }
}

HC_INLINE int32_t quad(const int8_t* p) {
  int32_t x;
  memcpy(&x, p, 4);
  return x;
}
/// Whether the 16-bit sums of kQuads products of code pairs with 7-bit activations fit: |pair| ≤ 2 · kMax · 64.
template <class Format, int kQuads>
constexpr bool kFits16 = kQuads * 2 * Format::kMax * 64 <= 32767;
static_assert(kFits16<FormatQ8_0, 1> && kFits16<FormatQ5_K, 8> && kFits16<FormatQ6_K, 4>);
