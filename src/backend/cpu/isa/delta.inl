// The gated delta rule. Values lie in lanes, 16 columns of a head's matrix side by side, so that no sum runs over
// lanes; sums over keys are sequential.

static void convolve(const ConvolveArgs& a) {
  for_lanes(a.n, [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
    Floats sum = broadcast(0.0f);
    for (uint32_t j = 0; j < a.n_taps; ++j)
      sum = fma(load_lanes(a.taps + j * a.tap_stride + i, count), load_lanes(a.inputs[j] + i, count), sum);
    store_lanes(a.out + i, silu(sum), count);
  });
}

static void delta_gates(const float* a, const float* dt_bias, uint32_t n, float* decay, float* beta) {
  for_lanes(n, [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
    const Floats step = softplus(add(load_lanes(decay + i, count), load_lanes(dt_bias + i, count)));
    store_lanes(decay + i, exponential(mul(load_lanes(a + i, count), step)), count);
    store_lanes(beta + i, times_sigmoid(broadcast(1.0f), load_lanes(beta + i, count)), count);
  });
}

/// known = decay · kᵀS;  new = β (v − known);  S = decay · S + k ⊗ new;  out = qᵀS
template <int kBlocks>
static void delta_blocks(const DeltaStepArgs& a) {
  const size_t block = size_t(a.key_dim) * kLanes;
  const Floats decay = broadcast(a.decay), beta = broadcast(a.beta);
  Floats fresh[kBlocks], sum[kBlocks];
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) fresh[b] = sum[b] = broadcast(0.0f);
  for (uint32_t i = 0; i < a.key_dim; ++i) {
    const Floats k = broadcast(a.k[i]);
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) fresh[b] = fma(k, load(a.state + size_t(b) * block + i * kLanes), fresh[b]);
  }
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    const uint32_t first = uint32_t(b) * kLanes;
    const Floats v = load_lanes(a.v + first, a.n_values - first < kLanes ? a.n_values - first : kLanes);
    fresh[b] = mul(beta, sub(v, mul(decay, fresh[b])));
  }
  for (uint32_t i = 0; i < a.key_dim; ++i) {
    const Floats k = broadcast(a.k[i]), q = broadcast(a.q[i]);
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      float* s = a.state + size_t(b) * block + i * kLanes;
      const Floats now = fma(k, fresh[b], mul(decay, load(s)));
      store(s, now);
      sum[b] = fma(q, now, sum[b]);
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    const uint32_t first = uint32_t(b) * kLanes;
    store_lanes(a.out + first, sum[b], a.n_values - first < kLanes ? a.n_values - first : kLanes);
  }
}

static void delta_step(const DeltaStepArgs& a) {
  static_assert(kDeltaBlocks == 4);
  switch ((a.n_values + kLanes - 1) / kLanes) {
    case 1: return delta_blocks<1>(a);
    case 2: return delta_blocks<2>(a);
    case 3: return delta_blocks<3>(a);
    default: return delta_blocks<4>(a);
  }
}
