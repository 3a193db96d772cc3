// Unpacking of a tile and its integer dot products, in plain C++.

/// Codes of one group of 16 outputs into tile[g][output][c].
template <class Format>
static inline void unpack_codes(const typename Format::Block* const* blocks, uint32_t group, uint8_t (*tile)[16][4]) {
  for (uint32_t r = 0; r < kLanes; ++r) {
    uint8_t codes[kGroup];
    Format::codes(*blocks[r], group, codes);
    for (int g = 0; g < 8; ++g) memcpy(tile[g][r], codes + 4 * g, 4);
  }
}

/// Σ code · q over the quads [first, first + kQuads) of a group, per output.
template <class Format, int kQuads>
static inline Ints dot(const uint8_t (*tile)[16][4], const ActivationGroup& x, int first) {
  Ints r = broadcast_int(0);
  for (int g = first; g < first + kQuads; ++g)
    for (int c = 0; c < 4; ++c) {
      const int q = 128 * x.hi[4 * g + c] + x.lo[4 * g + c];
      for (int i = 0; i < 16; ++i) r.v[i] += tile[g][i][c] * q;
    }
  return r;
}
