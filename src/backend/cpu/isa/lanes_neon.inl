// Sixteen lanes as four 128-bit registers: Advanced SIMD of every 64-bit ARM.
#define HC_NEON  // which the scalar body, compiled for the same processors, does not use
/// Queries that attention sums up together: four registers each, of 32.
constexpr int kMostQueries = 4;
/// Sums that attention has in registers at the same time.
constexpr int kMostSums = 4;

struct Floats {
  float32x4_t a, b, c, d;
};
struct Ints {
  int32x4_t a, b, c, d;
};
#define HC_INLINE [[gnu::always_inline]] static inline
#define HC_UNARY(Result, name, Argument, instruction) \
  HC_INLINE Result name(Argument x) { return {instruction(x.a), instruction(x.b), instruction(x.c), instruction(x.d)}; }
#define HC_BINARY(Lanes, name, instruction)                                                              \
  HC_INLINE Lanes name(Lanes x, Lanes y) {                                                               \
    return {instruction(x.a, y.a), instruction(x.b, y.b), instruction(x.c, y.c), instruction(x.d, y.d)}; \
  }

HC_INLINE float half(uint16_t h) {
  __fp16 x;
  memcpy(&x, &h, sizeof x);
  return x;
}

HC_INLINE Floats load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
HC_INLINE void store(float* p, Floats x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
HC_INLINE Floats broadcast(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
HC_INLINE uint16x8_t load_words(const uint8_t* p) { return vreinterpretq_u16_u8(vld1q_u8(p)); }
HC_INLINE Floats load_half(const uint8_t* p) {
  const float16x8_t low = vreinterpretq_f16_u16(load_words(p)), high = vreinterpretq_f16_u16(load_words(p + 16));
  return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
          vcvt_high_f32_f16(high)};
}
HC_INLINE void store_half(uint8_t* p, Floats x) {
  const float16x8_t low = vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b), high = vcvt_high_f16_f32(vcvt_f16_f32(x.c), x.d);
  vst1q_u8(p, vreinterpretq_u8_f16(low));
  vst1q_u8(p + 16, vreinterpretq_u8_f16(high));
}
HC_INLINE Floats load_bf16(const uint8_t* p) {
  const uint16x8_t low = load_words(p), high = load_words(p + 16);
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(low, 16)),
          vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(high), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(high, 16))};
}
HC_BINARY(Floats, add, vaddq_f32)
HC_BINARY(Floats, sub, vsubq_f32)
HC_BINARY(Floats, mul, vmulq_f32)
HC_BINARY(Floats, div, vdivq_f32)
HC_INLINE float32x4_t larger(float32x4_t x, float32x4_t y) {  // not vmaxq: that is a NaN where either is one
  return vbslq_f32(vcgtq_f32(x, y), x, y);
}
HC_BINARY(Floats, max, larger)
HC_INLINE Floats fma(Floats x, Floats y, Floats z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d)};
}
HC_UNARY(Floats, swap_neighbours, Floats, vrev64q_f32)
HC_INLINE Floats select_less(Floats x, Floats y, Floats p, Floats q) {
  return {vbslq_f32(vcltq_f32(x.a, y.a), p.a, q.a), vbslq_f32(vcltq_f32(x.b, y.b), p.b, q.b),
          vbslq_f32(vcltq_f32(x.c, y.c), p.c, q.c), vbslq_f32(vcltq_f32(x.d, y.d), p.d, q.d)};
}

HC_UNARY(Ints, as_ints, Floats, vreinterpretq_s32_f32)
HC_UNARY(Floats, as_floats, Ints, vreinterpretq_f32_s32)
HC_UNARY(Floats, to_floats, Ints, vcvtq_f32_s32)
HC_INLINE Ints broadcast_int(int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
HC_BINARY(Ints, add, vaddq_s32)
HC_BINARY(Ints, sub, vsubq_s32)
HC_BINARY(Ints, max, vmaxq_s32)
HC_BINARY(Ints, bit_or, vorrq_s32)
HC_BINARY(Ints, bit_and, vandq_s32)
template <int kBits>
HC_INLINE Ints shift_left(Ints x) {
  return {vshlq_n_s32(x.a, kBits), vshlq_n_s32(x.b, kBits), vshlq_n_s32(x.c, kBits), vshlq_n_s32(x.d, kBits)};
}
template <int kBits>
HC_INLINE Ints shift_right(Ints x) {
  return {vshrq_n_s32(x.a, kBits), vshrq_n_s32(x.b, kBits), vshrq_n_s32(x.c, kBits), vshrq_n_s32(x.d, kBits)};
}
HC_INLINE Ints shift_right_by(Ints x, uint32_t bits) {
  const int32x4_t left = vdupq_n_s32(-int32_t(bits));
  const auto each = [&](int32x4_t lanes) __attribute__((always_inline)) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(lanes), left));
  };
  return {each(x.a), each(x.b), each(x.c), each(x.d)};
}
HC_INLINE int32x4_t load_dwords(const uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
HC_INLINE Ints load_ints(const uint8_t* p) {
  return {load_dwords(p), load_dwords(p + 16), load_dwords(p + 32), load_dwords(p + 48)};
}
HC_INLINE void store_ints(void* p, Ints x) {
  uint8_t* to = static_cast<uint8_t*>(p);
  vst1q_u8(to, vreinterpretq_u8_s32(x.a));
  vst1q_u8(to + 16, vreinterpretq_u8_s32(x.b));
  vst1q_u8(to + 32, vreinterpretq_u8_s32(x.c));
  vst1q_u8(to + 48, vreinterpretq_u8_s32(x.d));
}
HC_INLINE Ints widen_words(uint16x8_t low, uint16x8_t high) {
  return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_high_u16(low)),
          vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_high_u16(high))};
}
HC_INLINE Ints load_u16(const uint8_t* p) { return widen_words(load_words(p), load_words(p + 16)); }
HC_INLINE Ints load_u8(const uint8_t* p) {
  const uint8x16_t x = vld1q_u8(p);
  return widen_words(vmovl_u8(vget_low_u8(x)), vmovl_high_u8(x));
}
HC_INLINE Floats load_s8(const uint8_t* p) {
  const int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_high_s8(x);
  return to_floats(
      {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)});
}
/// Every byte: table[byte] + offset, for bytes below 16.
HC_INLINE Ints look_up(Ints codes, const int8_t* table, uint32_t offset) {
  const int8x16_t values = vaddq_s8(vld1q_s8(table), vdupq_n_s8(int8_t(offset)));
  const auto each = [&](int32x4_t lanes) __attribute__((always_inline)) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(values, vreinterpretq_u8_s32(lanes)));
  };
  return {each(codes.a), each(codes.b), each(codes.c), each(codes.d)};
}
HC_INLINE void store_bytes(int8_t* p, Ints x) {
  const int16x8_t low = vmovn_high_s32(vmovn_s32(x.a), x.b), high = vmovn_high_s32(vmovn_s32(x.c), x.d);
  vst1q_s8(p, vmovn_high_s16(vmovn_s16(low), high));
}

HC_INLINE float sum(Floats x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
HC_INLINE int32_t sum(Ints x) { return vaddvq_s32(vaddq_s32(vaddq_s32(x.a, x.c), vaddq_s32(x.b, x.d))); }
HC_INLINE float max_lane(Floats x) {
  const float32x4_t four = larger(larger(x.a, x.c), larger(x.b, x.d));
  const float32x4_t two = larger(four, vextq_f32(four, four, 2));
  const float p = vgetq_lane_f32(two, 0), q = vgetq_lane_f32(two, 1);
  return p > q ? p : q;
}
HC_INLINE int32_t max_lane(Ints x) { return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.a, x.c), vmaxq_s32(x.b, x.d))); }
HC_INLINE float first(Floats x) { return vgetq_lane_f32(x.a, 0); }
HC_INLINE float square_root(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }
#undef HC_UNARY
#undef HC_BINARY
