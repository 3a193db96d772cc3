// Sixteen lanes in plain C++: what every operation of the vector vocabulary means. The other lanes_*.inl must give the
// same bits. Works on every architecture.
using std::bit_cast;

/// Queries that attention sums up together: as good as any number.
constexpr int kMostQueries = 4;
/// Sums that attention has in registers at the same time.
constexpr int kMostSums = 4;

struct Floats {
  float v[16];
};
struct Ints {
  int32_t v[16];
};

#define HC_INLINE static inline
#define HC_EACH for (int i = 0; i < 16; ++i)

static inline float half(uint16_t h) { return f16_to_f32(h); }

static inline Floats load(const float* p) {
  Floats r;
  memcpy(r.v, p, sizeof r.v);
  return r;
}
static inline void store(float* p, Floats a) { memcpy(p, a.v, sizeof a.v); }
static inline Floats broadcast(float x) {
  Floats r;
  HC_EACH r.v[i] = x;
  return r;
}
static inline Floats load_half(const uint8_t* p) {
  uint16_t h[16];
  memcpy(h, p, sizeof h);
  Floats r;
  HC_EACH r.v[i] = f16_to_f32(h[i]);
  return r;
}
static inline void store_half(uint8_t* p, const Floats& a) {
  uint16_t h[16];
  HC_EACH h[i] = f32_to_f16(a.v[i]);
  memcpy(p, h, sizeof h);
}
static inline Floats load_bf16(const uint8_t* p) {
  uint16_t h[16];
  memcpy(h, p, sizeof h);
  Floats r;
  HC_EACH r.v[i] = bf16_to_f32(h[i]);
  return r;
}
static inline Floats load_s8(const uint8_t* p) {
  Floats r;
  HC_EACH r.v[i] = float(int8_t(p[i]));
  return r;
}
#define HC_BINARY(name, expression)               \
  static inline Floats name(Floats a, Floats b) { \
    HC_EACH a.v[i] = expression;                  \
    return a;                                     \
  }
HC_BINARY(add, a.v[i] + b.v[i])
HC_BINARY(sub, a.v[i] - b.v[i])
HC_BINARY(mul, a.v[i] * b.v[i])
HC_BINARY(div, a.v[i] / b.v[i])
HC_BINARY(max, a.v[i] > b.v[i] ? a.v[i] : b.v[i])  // b where either is NaN
#undef HC_BINARY
static inline Floats fma(Floats a, Floats b, Floats c) {
  HC_EACH a.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return a;
}
/// a < b ? x : y
static inline Floats select_less(Floats a, Floats b, Floats x, Floats y) {
  HC_EACH x.v[i] = a.v[i] < b.v[i] ? x.v[i] : y.v[i];
  return x;
}

static inline Floats swap_neighbours(const Floats& a) {
  Floats r;
  HC_EACH r.v[i] = a.v[i ^ 1];
  return r;
}

static inline Ints as_ints(Floats a) { return bit_cast<Ints>(a); }
static inline Floats as_floats(Ints a) { return bit_cast<Floats>(a); }
static inline Floats to_floats(Ints a) {
  Floats r;
  HC_EACH r.v[i] = float(a.v[i]);
  return r;
}
static inline Ints broadcast_int(int32_t x) {
  Ints r;
  HC_EACH r.v[i] = x;
  return r;
}
static inline Ints add(Ints a, Ints b) {
  HC_EACH a.v[i] = int32_t(uint32_t(a.v[i]) + uint32_t(b.v[i]));
  return a;
}
static inline Ints sub(Ints a, Ints b) {
  HC_EACH a.v[i] = int32_t(uint32_t(a.v[i]) - uint32_t(b.v[i]));
  return a;
}
static inline Ints max(Ints a, Ints b) {
  HC_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
static inline Ints bit_or(Ints a, Ints b) {
  HC_EACH a.v[i] |= b.v[i];
  return a;
}
static inline Ints bit_and(Ints a, Ints b) {
  HC_EACH a.v[i] &= b.v[i];
  return a;
}
template <int kBits>
static inline Ints shift_left(Ints a) {
  HC_EACH a.v[i] = int32_t(uint32_t(a.v[i]) << kBits);
  return a;
}
template <int kBits>
static inline Ints shift_right(Ints a) {
  HC_EACH a.v[i] >>= kBits;
  return a;
}
static inline Ints shift_right_by(Ints a, uint32_t bits) {
  HC_EACH a.v[i] = int32_t(uint32_t(a.v[i]) >> bits);
  return a;
}
static inline Ints load_ints(const void* p) {
  Ints r;
  memcpy(r.v, p, sizeof r.v);
  return r;
}
static inline void store_ints(void* p, const Ints& a) { memcpy(p, a.v, sizeof a.v); }
static inline Ints load_u8(const uint8_t* p) {
  Ints r;
  HC_EACH r.v[i] = p[i];
  return r;
}
static inline Ints load_u16(const uint8_t* p) {
  uint16_t h[16];
  memcpy(h, p, sizeof h);
  Ints r;
  HC_EACH r.v[i] = h[i];
  return r;
}
/// Every byte: table[byte] + offset, for bytes below 16.
static inline Ints look_up(const Ints& codes, const int8_t* table, uint32_t offset) {
  uint8_t bytes[64];
  memcpy(bytes, codes.v, sizeof bytes);
  for (uint8_t& b : bytes) b = uint8_t(table[b] + int(offset));
  return load_ints(bytes);
}
/// The low byte of each lane.
static inline void store_bytes(int8_t* p, Ints a) { HC_EACH p[i] = int8_t(a.v[i]); }

/// Lane i is added to lane i + 8, then + 4, + 2, + 1: the one order of every sum over lanes.
static inline float sum(Floats a) {
  for (int half_width = 8; half_width > 0; half_width /= 2)
    for (int i = 0; i < half_width; ++i) a.v[i] += a.v[i + half_width];
  return a.v[0];
}
static inline int32_t sum(Ints a) {
  uint32_t s = 0;
  HC_EACH s += uint32_t(a.v[i]);
  return int32_t(s);
}
static inline float max_lane(Floats a) {
  for (int half_width = 8; half_width > 0; half_width /= 2)
    for (int i = 0; i < half_width; ++i) a.v[i] = a.v[i] > a.v[i + half_width] ? a.v[i] : a.v[i + half_width];
  return a.v[0];
}
static inline int32_t max_lane(Ints a) {
  int32_t m = a.v[0];
  HC_EACH m = m > a.v[i] ? m : a.v[i];
  return m;
}
static inline float first(Floats a) { return a.v[0]; }
static inline float square_root(float x) { return __builtin_sqrtf(x); }
#undef HC_EACH
