// Sixteen lanes as one 512-bit register: AVX-512 F, BW, VL, DQ.
/// Queries that attention sums up together: of 32 registers.
constexpr int kMostQueries = 8;
/// Sums that attention has in registers at the same time.
constexpr int kMostSums = 16;

struct Floats {
  __m512 a;
};
struct Ints {
  __m512i a;
};
#define HC_INLINE [[gnu::always_inline]] static inline

HC_INLINE float half(uint16_t h) { return _cvtsh_ss(h); }

HC_INLINE Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
HC_INLINE void store(float* p, Floats x) { _mm512_storeu_ps(p, x.a); }
HC_INLINE Floats broadcast(float x) { return {_mm512_set1_ps(x)}; }
HC_INLINE __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
HC_INLINE __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
HC_INLINE Floats load_half(const uint8_t* p) { return {_mm512_cvtph_ps(load256(p))}; }
HC_INLINE void store_half(uint8_t* p, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
}
HC_INLINE Floats load_bf16(const uint8_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(p)), 16))};
}
HC_INLINE Floats load_s8(const uint8_t* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(p)))}; }
HC_INLINE Floats add(Floats x, Floats y) { return {_mm512_add_ps(x.a, y.a)}; }
HC_INLINE Floats sub(Floats x, Floats y) { return {_mm512_sub_ps(x.a, y.a)}; }
HC_INLINE Floats mul(Floats x, Floats y) { return {_mm512_mul_ps(x.a, y.a)}; }
HC_INLINE Floats div(Floats x, Floats y) { return {_mm512_div_ps(x.a, y.a)}; }
HC_INLINE Floats max(Floats x, Floats y) { return {_mm512_max_ps(x.a, y.a)}; }
HC_INLINE Floats fma(Floats x, Floats y, Floats z) { return {_mm512_fmadd_ps(x.a, y.a, z.a)}; }
HC_INLINE Floats select_less(Floats x, Floats y, Floats p, Floats q) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.a, y.a, _CMP_LT_OQ), q.a, p.a)};
}

/// Lanes 2 i and 2 i + 1 change places.
HC_INLINE Floats swap_neighbours(Floats x) { return {_mm512_permute_ps(x.a, 0xb1)}; }

HC_INLINE Ints as_ints(Floats x) { return {_mm512_castps_si512(x.a)}; }
HC_INLINE Floats as_floats(Ints x) { return {_mm512_castsi512_ps(x.a)}; }
HC_INLINE Floats to_floats(Ints x) { return {_mm512_cvtepi32_ps(x.a)}; }
HC_INLINE Ints broadcast_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
HC_INLINE Ints add(Ints x, Ints y) { return {_mm512_add_epi32(x.a, y.a)}; }
HC_INLINE Ints sub(Ints x, Ints y) { return {_mm512_sub_epi32(x.a, y.a)}; }
HC_INLINE Ints max(Ints x, Ints y) { return {_mm512_max_epi32(x.a, y.a)}; }
HC_INLINE Ints bit_or(Ints x, Ints y) { return {_mm512_or_si512(x.a, y.a)}; }
HC_INLINE Ints bit_and(Ints x, Ints y) { return {_mm512_and_si512(x.a, y.a)}; }
template <int kBits>
HC_INLINE Ints shift_left(Ints x) {
  return {_mm512_slli_epi32(x.a, kBits)};
}
template <int kBits>
HC_INLINE Ints shift_right(Ints x) {
  return {_mm512_srai_epi32(x.a, kBits)};
}
HC_INLINE Ints shift_right_by(Ints x, uint32_t bits) { return {_mm512_srl_epi32(x.a, _mm_cvtsi32_si128(int(bits)))}; }
HC_INLINE Ints load_ints(const void* p) { return {_mm512_loadu_si512(p)}; }
HC_INLINE void store_ints(void* p, Ints x) { _mm512_storeu_si512(p, x.a); }
HC_INLINE Ints load_u8(const uint8_t* p) { return {_mm512_cvtepu8_epi32(load128(p))}; }
HC_INLINE Ints load_u16(const uint8_t* p) { return {_mm512_cvtepu16_epi32(load256(p))}; }
/// Every byte: table[byte] + offset, for bytes below 16.
HC_INLINE Ints look_up(Ints codes, const int8_t* table, uint32_t offset) {
  const __m512i values = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load128(table)), codes.a);
  return {_mm512_add_epi8(values, _mm512_set1_epi8(char(offset)))};
}
HC_INLINE void store_bytes(int8_t* p, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.a));
}

HC_INLINE __m256 low_half(__m512 x) { return _mm512_castps512_ps256(x); }
HC_INLINE __m256 high_half(__m512 x) { return _mm512_extractf32x8_ps(x, 1); }
HC_INLINE float sum(Floats x) {
  const __m256 eight = _mm256_add_ps(low_half(x.a), high_half(x.a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
HC_INLINE int32_t sum(Ints x) { return _mm512_reduce_add_epi32(x.a); }
HC_INLINE float max_lane(Floats x) {
  const __m256 eight = _mm256_max_ps(low_half(x.a), high_half(x.a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
HC_INLINE int32_t max_lane(Ints x) { return _mm512_reduce_max_epi32(x.a); }
HC_INLINE float first(Floats x) { return _mm512_cvtss_f32(x.a); }
HC_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
