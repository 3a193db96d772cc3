// Mat-vec and mat-mul of one panel: up to 16 outputs, one per lane, times any number of rows. A row's result does not
// depend on the other rows: per group of 32 inputs, in order,
//   acc = fma(float(Σ (code − offset) q), d_weight · d_activation, acc)       once, or per half of the group
//   acc = fma(m_weight, d_activation · Σ q, acc)                             likewise, where the format has minima.

HC_INLINE size_t input_row(const MultiplyArgs& a, uint32_t m) { return a.rows ? a.rows[m] : m; }

template <class Format>
static void unpack_tile(const MultiplyArgs& a, uint32_t first_group, uint32_t n_groups) {
  using Block = typename Format::Block;
  Tile& t = *a.tile;
  // The panel's rows lie one after another, but are read side by side, which the hardware does not foresee. Each group
  // fetches its share of the next panel.
  constexpr size_t kBytesPerGroup = kLanes * sizeof(Block) / Format::kGroupsPerBlock;
  const uint8_t* ahead = a.weights + kLanes * a.row_bytes + first_group * kBytesPerGroup;
  for (uint32_t g = 0; g < n_groups; ++g, ahead += kBytesPerGroup) {
    for (size_t line = 0; line < kBytesPerGroup; line += 64) __builtin_prefetch(ahead + line);
    const uint32_t group = first_group + g, within = group % Format::kGroupsPerBlock;
    const Block* blocks[kLanes];
    for (uint32_t r = 0; r < kLanes; ++r) {  // a short panel repeats its last output
      const uint8_t* row = a.weights + (r < a.n_outputs ? r : a.n_outputs - 1) * a.row_bytes;
      blocks[r] = reinterpret_cast<const Block*>(row) + group / Format::kGroupsPerBlock;
      Format::scales(*blocks[r], within, &t.d[g][0][r], &t.m[g][0][r]);
    }
    unpack_codes<Format>(blocks, within, t.values[g]);
  }
}

template <class Format>
HC_INLINE Floats multiply_group(const Tile& t, uint32_t g, const ActivationGroup& x, Floats acc) {
  constexpr int kQuads = 8 / Format::kScales;
  for (uint32_t s = 0; s < Format::kScales; ++s) {
    const int32_t q_sum = Format::kScales == 2 ? x.sum[s] : x.sum[0] + x.sum[1];
    const Ints product = dot<Format, kQuads>(t.values[g], x, int(s) * kQuads);
    const Ints exact = sub(product, broadcast_int(int32_t(Format::kOffset) * q_sum));
    acc = fma(to_floats(exact), mul(load(t.d[g][s]), broadcast(x.d)), acc);
  }
  for (uint32_t s = 0; s < Format::kMins; ++s) {
    const int32_t q_sum = Format::kMins == 2 ? x.sum[s] : x.sum[0] + x.sum[1];
    acc = fma(load(t.m[g][s]), broadcast(x.d * float(q_sum)), acc);
  }
  return acc;
}

template <class Format>
static void multiply_integer(const MultiplyArgs& a) {
  const uint32_t n_groups = a.cols / kGroup;
  for (uint32_t first_group = 0; first_group < n_groups; first_group += kTileGroups) {
    const uint32_t count = n_groups - first_group < kTileGroups ? n_groups - first_group : kTileGroups;
    unpack_tile<Format>(a, first_group, count);
    for (uint32_t m = 0; m < a.n_rows; ++m) {
      const ActivationGroup* x = a.groups + input_row(a, m) * n_groups + first_group;
      Floats acc = first_group == 0 ? broadcast(0.0f) : load(a.y + size_t(m) * kLanes);
      for (uint32_t g = 0; g < count; ++g) acc = multiply_group<Format>(*a.tile, g, x[g], acc);
      store(a.y + size_t(m) * kLanes, acc);
    }
  }
}

struct WeightF32 {
  static constexpr uint32_t kBytes = 4;
  HC_INLINE Floats load16(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct WeightF16 {
  static constexpr uint32_t kBytes = 2;
  HC_INLINE Floats load16(const uint8_t* p) { return load_half(p); }
};
struct WeightBF16 {
  static constexpr uint32_t kBytes = 2;
  HC_INLINE Floats load16(const uint8_t* p) { return load_bf16(p); }
};

/// kOutputs dot products with one row: product k in lane k mod 16, lanes added by sum().
template <class Weight, int kOutputs>
HC_INLINE void multiply_outputs(const MultiplyArgs& a, uint32_t output, const float* x, float* y) {
  Floats acc[kOutputs];
  const uint8_t* w[kOutputs];
#pragma GCC unroll 4
  for (int r = 0; r < kOutputs; ++r) {
    acc[r] = broadcast(0.0f);
    w[r] = a.weights + (output + uint32_t(r)) * a.row_bytes;
  }
  const uint32_t whole = a.cols / kLanes * kLanes;
  for (uint32_t k = 0; k < whole; k += kLanes) {
    const Floats v = load(x + k);
#pragma GCC unroll 4
    for (int r = 0; r < kOutputs; ++r) acc[r] = fma(Weight::load16(w[r] + size_t(k) * Weight::kBytes), v, acc[r]);
  }
  if (whole < a.cols) {
    const Floats v = load(x + whole);
#pragma GCC unroll 4
    for (int r = 0; r < kOutputs; ++r) {
      alignas(64) uint8_t tail[kLanes * Weight::kBytes] = {};
      memcpy(tail, w[r] + size_t(whole) * Weight::kBytes, (a.cols - whole) * Weight::kBytes);
      acc[r] = fma(Weight::load16(tail), v, acc[r]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kOutputs; ++r) y[r] = sum(acc[r]);
}

template <class Weight>
static void multiply_float(const MultiplyArgs& a) {
  const size_t stride = (size_t(a.cols) + kLanes - 1) / kLanes * kLanes;
  uint32_t output = 0;
  for (; output + 4 <= a.n_outputs; output += 4)
    for (uint32_t m = 0; m < a.n_rows; ++m)
      multiply_outputs<Weight, 4>(a, output, a.plain + input_row(a, m) * stride, a.y + size_t(m) * kLanes + output);
  for (; output < a.n_outputs; ++output)
    for (uint32_t m = 0; m < a.n_rows; ++m)
      multiply_outputs<Weight, 1>(a, output, a.plain + input_row(a, m) * stride, a.y + size_t(m) * kLanes + output);
}
