// Mat-vec and mat-mul of up to 16 rows of a floating-point matrix where it lies, product k in lane k mod 16. A row's
// result does not depend on the other rows.
HC_INLINE size_t input_row(const MultiplyArgs& a, uint32_t m) { return a.rows ? a.rows[m] : m; }

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
