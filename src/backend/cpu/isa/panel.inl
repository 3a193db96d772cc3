// Mat-vec and mat-mul of one packed panel: 16 outputs, one per lane, times any number of rows. A row's result does not
// depend on the other rows: per group of 32 inputs, in order,
//   acc = fma(float(Σ (code − offset) q), d_weight · d_activation, acc)       once, or per half of the group
//   acc = fma(m_weight, d_activation · Σ q, acc)                             likewise, where the format has minima.

template <int I>
struct Index {
  static constexpr int value = I;
  constexpr operator int() const { return I; }
};
/// body(Index<0>) … body(Index<kN − 1>): arrays that are indexed so stay in registers.
template <int kN, int kFrom = 0, class Body>
HC_INLINE void repeat(Body&& body) {
  if constexpr (kFrom < kN) {
    body(Index<kFrom>{});
    repeat<kN, kFrom + 1>(body);
  }
}

template <int kShift>
HC_INLINE Ints shift(Ints x) {  // left, or right where negative; bits that cross bytes are masked by the caller
  if constexpr (kShift > 0)
    return shift_left<kShift>(x);
  else if constexpr (kShift < 0)
    return shift_right<-kShift>(x);
  else
    return x;
}
HC_INLINE Ints masked(Ints x, uint32_t byte) { return bit_and(x, broadcast_int(int32_t(byte * 0x01010101u))); }

/// Codes of one group: w[g] holds those of inputs 4 g … 4 g + 3, a dword per output.
template <class Format>
HC_INLINE void load_codes(const uint8_t* p, Ints (&w)[8]) {
  constexpr CodePlanes kPlanes = CodePlanes(Format::kCodeBytes);
  if constexpr (kPlanes == kBytes)
    repeat<8>([&](auto g) __attribute__((always_inline)) { w[g] = load_ints(p + 64 * g); });
  if constexpr (kPlanes == kNibbles || kPlanes == kNibblesBit || kPlanes == kNibblesCrumbs)
    repeat<4>([&](auto j) __attribute__((always_inline)) {
      const Ints both = load_ints(p + 64 * j);
      w[j] = masked(both, 15);
      w[j + 4] = masked(shift<-4>(both), 15);
    });
  if constexpr (kPlanes == kNibblesBit) {
    const Ints bits = load_ints(p + 256);
    repeat<8>([&](auto g) __attribute__((always_inline)) { w[g] = bit_or(w[g], masked(shift<4 - g>(bits), 16)); });
  }
  if constexpr (kPlanes == kNibblesCrumbs)
    repeat<8>([&](auto g) __attribute__((always_inline)) {
      w[g] = bit_or(w[g], masked(shift<4 - 2 * (g % 4)>(load_ints(p + 256 + 64 * (g / 4))), 48));
    });
  if constexpr (kPlanes == kCrumbs || kPlanes == kCrumbsBit)
    repeat<8>([&](auto g) __attribute__((always_inline)) {
      w[g] = masked(shift<-2 * (g % 4)>(load_ints(p + 64 * (g / 4))), 3);
    });
  if constexpr (kPlanes == kCrumbsBit) {
    const Ints bits = load_ints(p + 128);
    repeat<8>([&](auto g) __attribute__((always_inline)) { w[g] = bit_or(w[g], masked(shift<2 - g>(bits), 4)); });
  }
  if constexpr (requires { Format::kValues; })
    repeat<8>([&](auto g) __attribute__((always_inline)) { w[g] = look_up(w[g], Format::kValues, Format::kOffset); });
}

HC_INLINE int32_t half_sum(const ActivationGroup& x, int half) { return half == 0 ? x.first_sum : x.sum - x.first_sum; }

/// One group of kRows rows, which share the group's codes in registers.
template <class Format, int kRows>
HC_INLINE void multiply_group(const Ints (&w)[8], const Floats* d, const Floats* m, const ActivationGroup* const* rows,
                              uint32_t group, Floats* acc) {
  constexpr int kQuads = 8 / Format::kScales;
  repeat<int(Format::kScales)>([&](auto half) __attribute__((always_inline)) {
    Dot<Format, kQuads> dots[kRows];
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      const ActivationGroup& row = rows[r][group];
      const int32_t q_sum = Format::kScales == 2 ? half_sum(row, half) : row.sum;
      dots[r].start(Format::kOffset == 0 ? 0 : -int32_t(Format::kOffset) * q_sum);
    });
    repeat<kQuads>([&](auto quad) __attribute__((always_inline)) {
      constexpr int g = half * kQuads + quad;
      repeat<kRows>([&](auto r) __attribute__((always_inline)) {
        const ActivationGroup& row = rows[r][group];
        dots[r].step(w[g], row.hi + 4 * g, row.lo + 4 * g);
      });
    });
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      acc[r] = fma(to_floats(dots[r].finish()), mul(d[half], broadcast(rows[r][group].d)), acc[r]);
    });
  });
  repeat<int(Format::kMins)>([&](auto half) __attribute__((always_inline)) {
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      const ActivationGroup& row = rows[r][group];
      const float scaled = Format::kMins == 2 ? row.d * float(half_sum(row, half)) : row.d_sum;
      acc[r] = fma(m[half], broadcast(scaled), acc[r]);
    });
  });
}

constexpr uint32_t kPrefetchBytes = 4096;  // how far ahead of a decoded token's reading

template <class Format, int kRows>
static void multiply_rows(const PanelArgs& a, uint32_t first_row) {
  Floats acc[kRows];
  repeat<kRows>([&](auto r) __attribute__((always_inline)) { acc[r] = broadcast(0.0f); });
  const ActivationGroup* rows[kRows];
  repeat<kRows>([&](auto r) __attribute__((always_inline)) {
    rows[r] = a.groups + size_t(a.rows ? a.rows[first_row + r] : first_row + r) * a.n_groups;
  });
  const uint8_t* block = a.panel;
  for (uint32_t group = 0; group < a.n_groups; block += Format::kBlockBytes) {
    for (uint32_t within = 0; within < Format::kGroupsPerBlock; ++within, ++group) {
      const uint8_t* codes = block + Format::kScaleBytes + within * Format::kCodeBytes;
      if (a.prefetch)
        for (uint32_t line = 0; line < Format::kCodeBytes; line += 64)
          __builtin_prefetch(codes + kPrefetchBytes + line);
      Ints w[8];
      load_codes<Format>(codes, w);
      Floats d[2], m[2];
      Format::scales(block, within, d, m);
      constexpr int kWhole = kRows / kRowsTogether, kRest = kRows % kRowsTogether;
      repeat<kWhole>([&](auto t) __attribute__((always_inline)) {
        multiply_group<Format, kRowsTogether>(w, d, m, rows + t * kRowsTogether, group, acc + t * kRowsTogether);
      });
      if constexpr (kRest != 0)
        multiply_group<Format, kRest>(w, d, m, rows + kWhole * kRowsTogether, group, acc + kWhole * kRowsTogether);
    }
  }
  repeat<kRows>([&](auto r) __attribute__((always_inline)) { store(a.y + (first_row + r) * kLanes, acc[r]); });
}

// A panel that has just been read is in the cache: the rest of the rows takes it again in fewer and fewer together.
template <class Format>
static void multiply_panel(const PanelArgs& a) {
  uint32_t row = 0;
  for (; row + 8 <= a.n_rows; row += 8) multiply_rows<Format, 8>(a, row);
  if ((a.n_rows - row) & 4) multiply_rows<Format, 4>(a, row), row += 4;
  if ((a.n_rows - row) & 2) multiply_rows<Format, 2>(a, row), row += 2;
  if ((a.n_rows - row) & 1) multiply_rows<Format, 1>(a, row);
}

/// The values of one output of a panel.
template <class Format>
static void unpack_output(const uint8_t* panel, uint32_t n_groups, uint32_t output, float* out) {
  const uint8_t* block = panel;
  for (uint32_t group = 0; group < n_groups; block += Format::kBlockBytes) {
    for (uint32_t within = 0; within < Format::kGroupsPerBlock; ++within, ++group, out += kGroup) {
      Ints w[8];
      load_codes<Format>(block + Format::kScaleBytes + within * Format::kCodeBytes, w);
      Floats d[2], m[2];
      Format::scales(block, within, d, m);
      alignas(64) uint8_t codes[8][kLanes][4];
      alignas(64) float scales[2][kLanes], minima[2][kLanes];
      repeat<8>([&](auto g) __attribute__((always_inline)) { store_ints(codes[g], w[g]); });
      for (uint32_t i = 0; i < Format::kScales; ++i) store(scales[i], d[i]);
      for (uint32_t i = 0; i < Format::kMins; ++i) store(minima[i], m[i]);
      for (uint32_t i = 0; i < kGroup; ++i) {
        const uint32_t half = i / 16;
        const float code = float(int32_t(codes[i / 4][output][i % 4]) - int32_t(Format::kOffset));
        float x = scales[Format::kScales == 2 ? half : 0][output] * code;
        if constexpr (Format::kMins != 0) x = x + minima[Format::kMins == 2 ? half : 0][output];
        out[i] = x;
      }
    }
  }
}
