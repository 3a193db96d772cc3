// Functions over one row: RMS norm, activations to integers, gates, softcap.

/// The first `n` < 16 values, the other lanes 0.
HC_INLINE Floats load_part(const float* p, uint32_t n) {
  alignas(64) float lanes[kLanes] = {};
  memcpy(lanes, p, n * sizeof(float));
  return load(lanes);
}
HC_INLINE void store_part(float* p, Floats x, uint32_t n) {
  alignas(64) float lanes[kLanes];
  store(lanes, x);
  memcpy(p, lanes, n * sizeof(float));
}
/// Calls body(i, count) for each run of up to 16 of n values.
template <class Body>
HC_INLINE void for_lanes(uint32_t n, Body body) {
  uint32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}
HC_INLINE Floats load_lanes(const float* p, uint32_t count) { return count == kLanes ? load(p) : load_part(p, count); }
HC_INLINE void store_lanes(float* p, Floats x, uint32_t count) {
  if (count == kLanes)
    store(p, x);
  else
    store_part(p, x, count);
}

/// Σ (x · scale)², value k in lane k mod 16.
static float sum_of_squares(const float* x, uint32_t n, float scale) {
  Floats s = broadcast(0.0f);
  for_lanes(n, [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
    const Floats v = mul(load_lanes(x + i, count), broadcast(scale));
    s = fma(v, v, s);
  });
  return sum(s);
}

static void rms_norm(const float* x, uint32_t n, const float* weight, float eps, float* out) {
  float scale = 1;
  float squares = sum_of_squares(x, n, 1);
  if (squares > 3.40282347e38f) {  // finite values above 1.8e19 overflow when squared
    scale = 5.42101086e-20f;       // 2^-64
    squares = sum_of_squares(x, n, scale);
    eps = 0;
  }
  const float factor = 1.0f / square_root(squares / float(n) + eps);
  for_lanes(n, [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
    Floats v = mul(mul(load_lanes(x + i, count), broadcast(scale)), broadcast(factor));
    if (weight) v = mul(v, load_lanes(weight + i, count));
    store_lanes(out + i, v, count);
  });
}

static void to_half(const float* x, uint32_t n, uint8_t* out) {
  for_lanes(n, [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
    alignas(32) uint8_t halves[2 * kLanes];
    store_half(halves, load_lanes(x + i, count));
    memcpy(out + 2 * size_t(i), halves, 2 * count);
  });
}

static void rotate_halves(float* a, float* b, const float* cosines, const float* sines, uint32_t n) {
  for_lanes(n, [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
    const Floats c = load_lanes(cosines + i, count), s = load_lanes(sines + i, count);
    const Floats x = load_lanes(a + i, count), y = load_lanes(b + i, count);
    store_lanes(a + i, sub(mul(x, c), mul(y, s)), count);
    store_lanes(b + i, add(mul(x, s), mul(y, c)), count);
  });
}
static void rotate_neighbours(float* x, const float* cosines, const float* sines, uint32_t n) {
  for_lanes(n, [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
    const Floats v = load_lanes(x + i, count);
    const Floats turned = mul(swap_neighbours(v), load_lanes(sines + i, count));
    store_lanes(x + i, add(mul(v, load_lanes(cosines + i, count)), turned), count);
  });
}

template <int kPlanes>
static void quantize(const float* x, uint32_t cols, uint32_t stride, void* groups) {
  constexpr float kLargest = kPlanes == 1 ? 127.0f : 8127.0f;
  auto* out = static_cast<ActivationGroup<kPlanes>*>(groups);
  const Ints magnitude_bits = broadcast_int(0x7fffffff);
  for (uint32_t k = 0; k < cols; k += kGroup, out += stride) {
    const Floats x0 = load(x + k), x1 = load(x + k + kLanes);
    // Compared as integers, magnitudes order like their values, with infinity and NaN above all others.
    const int32_t bits = max_lane(max(bit_and(as_ints(x0), magnitude_bits), bit_and(as_ints(x1), magnitude_bits)));
    float largest;
    memcpy(&largest, &bits, sizeof bits);
    // Below 1e-30 the factor would overflow; such a group is zero.
    const bool finite = bits < 0x7f800000, zero = finite && largest < 1e-30f;
    const Floats factor = broadcast(finite && !zero ? kLargest / largest : 0.0f);
    const Floats to_integer = broadcast(12582912.0f);  // 1.5 · 2^23: rounds to nearest, ties to even
    int32_t sums[2];  // of a half; of two planes both: 65536 Σ first + Σ second, which is small
    for (int i = 0; i < 2; ++i) {
      // A selection, not a product: an infinity times 0 would be a NaN.
      const Floats v = finite ? mul(i == 0 ? x0 : x1, factor) : broadcast(0.0f);
      const Ints q = sub(as_ints(add(v, to_integer)), broadcast_int(0x4B400000));
      if constexpr (kPlanes == 1) {
        store_bytes(out->planes[0] + 16 * i, q);
        sums[i] = sum(q);
      } else {
        const Ints hi = shift_right<7>(add(q, broadcast_int(64)));
        store_bytes(out->planes[0] + 16 * i, hi);
        const Ints lo = sub(q, shift_left<7>(hi));
        store_bytes(out->planes[1] + 16 * i, lo);
        sums[i] = sum(add(shift_left<16>(hi), lo));
      }
    }
    out->d = !finite ? __builtin_nanf("") : zero ? 0.0f : largest / kLargest;
    for (int i = 0; i < 2; ++i) {
      const int32_t last = kPlanes == 1 ? sums[i] : int16_t(sums[i]);
      out->raised[kPlanes - 1][i + 1] = -128 * last;
      if constexpr (kPlanes == 2) out->raised[0][i + 1] = (last - sums[i]) / 512;
    }
    for (int32_t(&of_plane)[3] : out->raised) of_plane[0] = of_plane[1] + of_plane[2];
    out->d_sum = out->d * float(sum_of<0>(*out));
  }
}

static void gate_silu(const float* other, float* y, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) store(y + i, mul(silu(load(y + i)), load(other + i)));
}
static void gate_gelu_tanh(const float* other, float* y, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) store(y + i, mul(gelu_tanh(load(y + i)), load(other + i)));
}
static void gate_clamped_swiglu(const float* other, float* y, size_t n) {
  const Floats limit = broadcast(kSwigluLimit), minus_limit = broadcast(-kSwigluLimit);
  for (size_t i = 0; i < n; i += kLanes) {
    Floats g = load(y + i), u = load(other + i);  // comparisons that fail keep a NaN
    g = select_less(limit, g, limit, g);
    u = select_less(limit, u, limit, u);
    u = select_less(u, minus_limit, minus_limit, u);
    store(y + i, mul(times_sigmoid(g, mul(broadcast(kSwigluAlpha), g)), add(u, broadcast(1.0f))));
  }
}
static void sigmoid_gate(const float* gate, float* y, uint32_t n) {
  for_lanes(n, [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
    store_lanes(y + i, times_sigmoid(load_lanes(y + i, count), load_lanes(gate + i, count)), count);
  });
}
HC_INLINE Floats soft_cap(Floats x, float cap) {
  return mul(hyperbolic_tangent(div(x, broadcast(cap))), broadcast(cap));
}
static void cap_and_scale(float* y, size_t n, float softcap, float scale) {
  for (size_t i = 0; i < n; i += kLanes) {
    Floats v = load(y + i);
    if (softcap != 0) v = soft_cap(v, softcap);
    store(y + i, mul(v, broadcast(scale)));
  }
}

static float exponentials(float* x, uint32_t n, float maximum) {
  Floats total = broadcast(0.0f);
  for_lanes(n, [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
    store_lanes(x + i, exponential(sub(load_lanes(x + i, count), broadcast(maximum))), count);
    total = add(total, load_lanes(x + i, count));
  });
  return sum(total);
}
static void weighted_sum(const float* panel, const uint32_t* indices, const float* weights, uint32_t n, float* out) {
  Floats total = broadcast(0.0f);
  for (uint32_t i = 0; i < n; ++i) total = fma(broadcast(weights[i]), load(panel + size_t(indices[i]) * kLanes), total);
  store(out, total);
}
