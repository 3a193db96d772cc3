// Mat-vec and mat-mul of packed panels: 16 outputs, one per lane, times any number of rows. A row's result does not
// depend on the other rows: per group of 32 inputs, in order,
//   acc = fma(float(Σ (code − offset) q), d_weight · d_activation, acc)       once, or per half of the group
//   acc = fma(m_weight, d_activation · Σ q, acc)                             likewise, where the format has minima.

/// Codes of one group: w[g] holds those of inputs 4 g … 4 g + 3, a dword per output.
template <class Format>
HC_INLINE void load_codes(const uint8_t* p, Ints* w) {
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

/// Rows of the input beside each other in a tile, at one of their groups.
template <int kPlanes>
struct TileRows {
  const ActivationGroup<kPlanes>* at;

  [[gnu::always_inline]] const ActivationGroup<kPlanes>& operator[](int row) const { return at[row]; }
  [[gnu::always_inline]] void advance(size_t groups) { at += groups; }
};
/// Rows of the input wherever they are.
template <int kPlanes, int kRows>
struct ListedRows {
  const uint8_t* first[kRows];
  size_t offset = 0;

  [[gnu::always_inline]] const ActivationGroup<kPlanes>& operator[](int row) const {
    return *reinterpret_cast<const ActivationGroup<kPlanes>*>(first[row] + offset);
  }
  [[gnu::always_inline]] void advance(size_t groups) { offset += groups * sizeof(ActivationGroup<kPlanes>); }
};

/// Rows [row, row + kRows) of those that are asked for, at a group of theirs.
template <int kPlanes, int kRows>
HC_INLINE ListedRows<kPlanes, kRows> listed_rows(const PanelArgs& a, uint32_t row, uint32_t group) {
  const auto* groups = static_cast<const ActivationGroup<kPlanes>*>(a.groups);
  ListedRows<kPlanes, kRows> rows;
  repeat<kRows>([&](auto r) __attribute__((always_inline)) {
    const uint32_t input = a.rows ? a.rows[row + r] : a.first + row + r;
    rows.first[r] = reinterpret_cast<const uint8_t*>(groups + first_group(input, a.n_groups, a.tile_rows) +
                                                     size_t(group) * a.tile_rows);
  });
  return rows;
}

/// Whether two rows are multiplied at once, by codes that pair_up() has rearranged for it.
template <class Format, int kPlanes>
constexpr bool kPairsRows = requires { typename Dot<Format, 8, kPlanes>::OfTwoRows; };

/// One group of the rows [kFirst, kFirst + kRows), whose sums are in registers together.
template <class Format, int kPlanes, int kFirst, int kRows, class Rows>
HC_INLINE void multiply_group(const Ints* w, const Floats* d, const Floats* m, const Rows& rows, Floats* acc) {
  constexpr int kQuads = 8 / Format::kScales;
  repeat<int(Format::kScales)>([&](auto half) __attribute__((always_inline)) {
    constexpr int kPart = Format::kScales == 2 ? half + 1 : 0;
    const auto add_to_sum = [&](auto r, Ints products) __attribute__((always_inline)) {
      Floats& sum = acc[kFirst + r];
      sum = fma(to_floats(products), mul(d[half], broadcast(rows[kFirst + r].d)), sum);
    };
    if constexpr (kPairsRows<Format, kPlanes> && kRows == 2) {
      typename Dot<Format, kQuads, kPlanes>::OfTwoRows dots;
      dots.template start<kPart>(rows[kFirst], rows[kFirst + 1]);
      repeat<kQuads>([&](auto quad) __attribute__((always_inline)) {
        constexpr int g = half * kQuads + quad;
        dots.template step<g>(w[g], rows[kFirst], rows[kFirst + 1]);
      });
      Ints first, second;
      dots.finish(first, second);
      add_to_sum(Index<0>{}, first);
      add_to_sum(Index<1>{}, second);
    } else {
      Dot<Format, kQuads, kPlanes> dots[kRows];
      repeat<kRows>([&](auto r) __attribute__((always_inline)) { dots[r].template start<kPart>(rows[kFirst + r]); });
      repeat<kQuads>([&](auto quad) __attribute__((always_inline)) {
        constexpr int g = half * kQuads + quad;
        const Ints codes = w[g];
        repeat<kRows>([&](auto r)
                          __attribute__((always_inline)) { dots[r].template step<g>(codes, rows[kFirst + r]); });
      });
      repeat<kRows>([&](auto r) __attribute__((always_inline)) { add_to_sum(r, dots[r].finish()); });
    }
  });
  repeat<int(Format::kMins)>([&](auto half) __attribute__((always_inline)) {
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      const auto& row = rows[kFirst + r];
      float scaled = row.d_sum;
      if constexpr (Format::kMins == 2) scaled = row.d * float(sum_of<half + 1>(row));
      acc[kFirst + r] = fma(m[half], broadcast(scaled), acc[kFirst + r]);
    });
  });
}
/// One group of kRows rows, kTogether at a time.
template <class Format, int kPlanes, int kRows, int kTogether, class Rows>
HC_INLINE void multiply_group_of_all(const Ints* w, const Floats* d, const Floats* m, const Rows& rows, Floats* acc) {
  constexpr int kWhole = kRows / kTogether, kRest = kRows % kTogether;
  repeat<kWhole>([&](auto t) __attribute__((always_inline)) {
    multiply_group<Format, kPlanes, t * kTogether, kTogether>(w, d, m, rows, acc);
  });
  if constexpr (kRest != 0) multiply_group<Format, kPlanes, kWhole * kTogether, kRest>(w, d, m, rows, acc);
}

/// The sums of a row and panel.
HC_INLINE float* outputs_at(const PanelArgs& a, uint32_t row, uint32_t p) {
  return a.y + (size_t(row) * a.n_panels + p) * kLanes;
}

// ---- few rows: the panel is waited for, and its codes live in registers only

constexpr uint32_t kMostFewRows = kRowsTogether == 1 ? 1 : 2 * kRowsTogether;  // that share unpacked codes
constexpr uint32_t kPrefetchBytes = 4096;  // how far ahead of a decoded token's reading

/// Rows [first_row, first_row + kRows) times panel p.
template <class Format, int kPlanes, int kRows>
static void multiply_rows(const PanelArgs& a, uint32_t p, uint32_t first_row) {
  Floats acc[kRows];
  repeat<kRows>([&](auto r) __attribute__((always_inline)) { acc[r] = broadcast(0.0f); });
  auto rows = listed_rows<kPlanes, kRows>(a, first_row, 0);
  const uint8_t* block = a.panels + p * a.panel_bytes;
  for (uint32_t group = 0; group < a.n_groups; block += Format::kBlockBytes) {
    for (uint32_t within = 0; within < Format::kGroupsPerBlock; ++within, ++group, rows.advance(a.tile_rows)) {
      const uint8_t* codes = block + Format::kScaleBytes + within * Format::kCodeBytes;
      for (uint32_t line = 0; line < Format::kCodeBytes; line += 64) __builtin_prefetch(codes + kPrefetchBytes + line);
      Ints w[8];
      load_codes<Format>(codes, w);
      if constexpr (kPairsRows<Format, kPlanes> && kRows > 1) Dot<Format, 8, kPlanes>::pair_up(w);
      Floats d[2], m[2];
      Format::scales(block, within, d, m);
      multiply_group_of_all<Format, kPlanes, kRows, kRowsTogether>(w, d, m, rows, acc);
    }
  }
  repeat<kRows>([&](auto r) __attribute__((always_inline)) { store(outputs_at(a, first_row + r, p), acc[r]); });
}

// ---- many rows: groups of the panels are unpacked once for all of them

constexpr uint32_t kUnpackedGroups =
    32;  // of all panels: as many as stay in the first-level cache beside a tile of rows

/// The format once its codes have been raised by 128 − kOffset, if that spares work.
template <class Format>
struct RaisedFormat : Format {
  static constexpr bool kRaised = kRaisesCodes && Format::kOffset != 0;
  static constexpr uint32_t kOffset = kRaised ? 128 : Format::kOffset;
  static constexpr uint32_t kMax = kRaised ? 255 : Format::kMax;
  static constexpr uint32_t kReach = !kRaised                                           ? Format::kReach
                                     : Format::kOffset < Format::kMax - Format::kOffset ? Format::kMax - Format::kOffset
                                                                                        : Format::kOffset;
};

template <class Format>
struct Unpacked {
  Ints w[8];
  Floats d[Format::kScales];
  Floats m[Format::kMins == 0 ? 1 : Format::kMins];
};

/// Adds n groups to the sums of kRowsTogetherUnpacked rows of a tile of 8. y: of the first row, those of others are
/// y_stride apart.
template <class Format, int kPlanes>
static void multiply_unpacked(const Unpacked<Format>* unpacked, uint32_t n, TileRows<kPlanes> rows, bool first,
                              float* y, size_t y_stride) {
  constexpr int kRows = kRowsTogetherUnpacked;
  Floats acc[kRows];
  repeat<kRows>([&](auto r)
                    __attribute__((always_inline)) { acc[r] = first ? broadcast(0.0f) : load(y + r * y_stride); });
  for (uint32_t i = 0; i < n; ++i, ++unpacked, rows.advance(kTileRows))
    multiply_group<RaisedFormat<Format>, kPlanes, 0, kRows>(unpacked->w, unpacked->d, unpacked->m, rows, acc);
  repeat<kRows>([&](auto r) __attribute__((always_inline)) { store(y + r * y_stride, acc[r]); });
}

/// Groups [group, group + n) of eight rows from `row` on, as a tile; copied to `copy` where they lie otherwise.
template <int kPlanes>
static const ActivationGroup<kPlanes>* tile_at(const PanelArgs& a, uint32_t row, uint32_t group, uint32_t n,
                                               ActivationGroup<kPlanes>* copy) {
  const auto* groups = static_cast<const ActivationGroup<kPlanes>*>(a.groups);
  if (a.rows == nullptr && a.tile_rows == kTileRows && a.first % kTileRows == 0)
    return groups + size_t(a.first + row) * a.n_groups + size_t(group) * kTileRows;
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint32_t input = a.rows ? a.rows[row + r] : a.first + row + r;
    const auto* from = groups + first_group(input, a.n_groups, a.tile_rows) + size_t(group) * a.tile_rows;
    for (uint32_t i = 0; i < n; ++i) copy[i * kTileRows + r] = from[size_t(i) * a.tile_rows];
  }
  return copy;
}

template <class Format, int kPlanes>
static void unpack_groups(const uint8_t* block, uint32_t n, Unpacked<Format>* unpacked) {
  for (uint32_t i = 0; i < n; block += Format::kBlockBytes)
    for (uint32_t within = 0; within < Format::kGroupsPerBlock; ++within, ++i) {
      load_codes<Format>(block + Format::kScaleBytes + within * Format::kCodeBytes, unpacked[i].w);
      if constexpr (RaisedFormat<Format>::kRaised && Format::kOffset != 128)
        for (Ints& w : unpacked[i].w) w = add(w, broadcast_int(int32_t((128 - Format::kOffset) * 0x01010101u)));
      if constexpr (kPairsRows<Format, kPlanes>) Dot<Format, 8, kPlanes>::pair_up(unpacked[i].w);
      Format::scales(block, within, unpacked[i].d, unpacked[i].m);
    }
}

template <class Format, int kPlanes>
static void multiply_tiles(const PanelArgs& a, uint32_t n_rows) {
  constexpr uint32_t kBlock = Format::kGroupsPerBlock;
  static_assert(kUnpackedGroups / kMostPanels % kBlock == 0 && kTileRows % kRowsTogetherUnpacked == 0);
  Unpacked<Format> unpacked[kUnpackedGroups];
  ActivationGroup<kPlanes> copy[kUnpackedGroups * kTileRows];
  const uint32_t stretch = kUnpackedGroups / a.n_panels / kBlock * kBlock;
  for (uint32_t group = 0; group < a.n_groups; group += stretch) {
    const uint32_t n = a.n_groups - group < stretch ? a.n_groups - group : stretch;
    for (uint32_t p = 0; p < a.n_panels; ++p)
      unpack_groups<Format, kPlanes>(a.panels + p * a.panel_bytes + size_t(group / kBlock) * Format::kBlockBytes, n,
                                     unpacked + p * stretch);
    for (uint32_t row = 0; row < n_rows; row += kTileRows) {
      const ActivationGroup<kPlanes>* tile = tile_at<kPlanes>(a, row, group, n, copy);
      for (uint32_t p = 0; p < a.n_panels; ++p)
        for (uint32_t r = 0; r < kTileRows; r += uint32_t(kRowsTogetherUnpacked))
          multiply_unpacked<Format, kPlanes>(unpacked + p * stretch, n, {tile + r}, group == 0,
                                             outputs_at(a, row + r, p), size_t(a.n_panels) * kLanes);
    }
  }
}

template <class Format, int kPlanes>
static void multiply_panels(const PanelArgs& a) {
  uint32_t first = 0;
  if (a.n_rows > kTileRows) {
    first = a.n_rows / kTileRows * kTileRows;
    multiply_tiles<Format, kPlanes>(a, first);
  }
  // A panel that has just been read is in the cache: the rest of the rows takes it again in fewer and fewer together.
  for (uint32_t p = 0; p < a.n_panels; ++p) {
    uint32_t row = first;
    for (; row + kMostFewRows <= a.n_rows; row += kMostFewRows)
      multiply_rows<Format, kPlanes, int(kMostFewRows)>(a, p, row);
    if constexpr (kMostFewRows > 4)
      if ((a.n_rows - row) & 4) multiply_rows<Format, kPlanes, 4>(a, p, row), row += 4;
    if constexpr (kMostFewRows > 2)
      if ((a.n_rows - row) & 2) multiply_rows<Format, kPlanes, 2>(a, p, row), row += 2;
    if constexpr (kMostFewRows > 1)
      if ((a.n_rows - row) & 1) multiply_rows<Format, kPlanes, 1>(a, p, row);
  }
}

/// The values of one output of a panel.
template <class Format>
static void unpack_output(const uint8_t* panel, uint32_t cols, uint32_t output, float* out) {
  const uint8_t* block = panel;
  for (uint32_t group = 0; group < cols / kGroup; block += Format::kBlockBytes) {
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
