// Mat-vec and mat-mul of panels of a floating-point format: 16 outputs, one per lane, times any number of rows. A
// row's result does not depend on the other rows: per group of 32 inputs (or what is left of them), in order,
//   s = fma(w, x, s) from 0 on, input after input
//   acc = acc + s
// Groups keep the rounding small, and leave a row that is alone sums of several groups to compute at the same time.

struct WeightF32 {
  static constexpr uint32_t kBytes = 4;
  HC_INLINE Floats load16(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
  HC_INLINE float value(const uint8_t* p) {
    float x;
    memcpy(&x, p, sizeof x);
    return x;
  }
};
struct WeightF16 {
  static constexpr uint32_t kBytes = 2;
  HC_INLINE Floats load16(const uint8_t* p) { return load_half(p); }
  HC_INLINE float value(const uint8_t* p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return half(h);
  }
};
struct WeightBF16 {
  static constexpr uint32_t kBytes = 2;
  HC_INLINE Floats load16(const uint8_t* p) { return load_bf16(p); }
  HC_INLINE float value(const uint8_t* p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    const uint32_t bits = uint32_t(h) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
  }
};

constexpr int kFloatRows = kMostQueries;  // rows whose sums are in registers together, as attention's are
/// Inputs of all panels whose weights, as f32, stay in the first-level cache beside those rows.
constexpr uint32_t kFloatStretch = 8 * kGroup;
static_assert(kFloatStretch / kMostPanels >= kGroup);

/// Weights of inputs [first, first + n) of the panels, `stride` bytes apart.
struct FloatStretch {
  const uint8_t* weights;
  size_t stride;
  uint32_t first, n;
};

/// Adds the products of a stretch to y, of panel p and the rows [row, row + kRows) of those that are asked for.
/// kPrefetches: the weights come from memory.
template <class Weight, int kRows, bool kPrefetches>
static void multiply_stretch(const FloatPanelArgs& a, const FloatStretch& stretch, uint32_t p, uint32_t row) {
  const uint8_t* w = stretch.weights + p * stretch.stride;
  const uint32_t n = stretch.n;
  const size_t y_stride = size_t(a.n_panels) * kLanes;
  float* y = a.y + row * y_stride + p * kLanes;
  const float* x[kRows];
  Floats acc[kRows];
  const bool begins = stretch.first == 0 && !a.adds;
  repeat<kRows>([&](auto r) __attribute__((always_inline)) {
    x[r] = a.inputs + (a.rows ? a.rows[row + r] : row + r) * a.input_stride + stretch.first;
    acc[r] = begins ? broadcast(0.0f) : load(y + r * y_stride);
  });
  for (uint32_t k = 0; k < n;) {
    const uint32_t end = n - k < kGroup ? n : k + kGroup;
    if constexpr (kPrefetches)
      for (uint32_t line = 0; line < kGroup * kLanes * Weight::kBytes; line += 64)
        __builtin_prefetch(w + kPrefetchBytes + line);
    Floats s[kRows];
    repeat<kRows>([&](auto r) __attribute__((always_inline)) { s[r] = broadcast(0.0f); });
#pragma GCC unroll 4
    for (; k < end; ++k, w += kLanes * Weight::kBytes) {
      const Floats weights = Weight::load16(w);
      repeat<kRows>([&](auto r) __attribute__((always_inline)) { s[r] = fma(weights, broadcast(x[r][k]), s[r]); });
    }
    repeat<kRows>([&](auto r) __attribute__((always_inline)) { acc[r] = add(acc[r], s[r]); });
  }
  repeat<kRows>([&](auto r) __attribute__((always_inline)) { store(y + r * y_stride, acc[r]); });
}

/// kRows rows of all panels.
template <class Weight, int kRows, bool kPrefetches>
static void multiply_stretches(const FloatPanelArgs& a, const FloatStretch& stretch, uint32_t row) {
  for (uint32_t p = 0; p < a.n_panels; ++p) multiply_stretch<Weight, kRows, kPrefetches>(a, stretch, p, row);
}
/// All rows, as many together as there are registers for.
template <class Weight, bool kPrefetches>
static void multiply_all_rows(const FloatPanelArgs& a, const FloatStretch& stretch) {
  uint32_t row = 0;
  for (; row + kFloatRows <= a.n_rows; row += kFloatRows)
    multiply_stretches<Weight, kFloatRows, kPrefetches>(a, stretch, row);
  if constexpr (kFloatRows > 4)
    if ((a.n_rows - row) & 4) multiply_stretches<Weight, 4, kPrefetches>(a, stretch, row), row += 4;
  if ((a.n_rows - row) & 2) multiply_stretches<Weight, 2, kPrefetches>(a, stretch, row), row += 2;
  if ((a.n_rows - row) & 1) multiply_stretches<Weight, 1, kPrefetches>(a, stretch, row);
}

template <class Weight>
static void multiply_float_panels(const FloatPanelArgs& a) {
  constexpr uint32_t kInput = kLanes * Weight::kBytes;
  const bool unpacks = Weight::kBytes != 4 && a.n_rows > uint32_t(kFloatRows);  // once for all rows
  alignas(64) float unpacked[kFloatStretch * kLanes];
  const uint32_t most = kFloatStretch / a.n_panels / kGroup * kGroup;
  for (uint32_t first = 0; first < a.cols; first += most) {
    const uint32_t n = a.cols - first < most ? a.cols - first : most;
    const FloatStretch stretch = {a.panels + size_t(first) * kInput, a.panel_bytes, first, n};
    if (!unpacks) {
      multiply_all_rows<Weight, true>(a, stretch);
      continue;
    }
    for (uint32_t p = 0; p < a.n_panels; ++p)
      for (uint32_t k = 0; k < n; ++k)
        store(unpacked + (p * most + k) * kLanes, Weight::load16(stretch.weights + p * stretch.stride + k * kInput));
    multiply_all_rows<WeightF32, false>(
        a, {reinterpret_cast<const uint8_t*>(unpacked), size_t(most) * kLanes * sizeof(float), first, n});
  }
}

/// The values of one output of a panel.
template <class Weight>
static void unpack_float_output(const uint8_t* panel, uint32_t cols, uint32_t output, float* out) {
  for (uint32_t k = 0; k < cols; ++k) out[k] = Weight::value(panel + (size_t(k) * kLanes + output) * Weight::kBytes);
}
