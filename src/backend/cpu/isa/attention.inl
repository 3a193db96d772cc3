// Attention of a chunk of positions, and the merge of chunks. Scores have one position per lane and are summed over the
// head sequentially; the weighted sum of V has one element per lane and is summed over positions sequentially.
// So neither needs a reduction whose order could differ.

struct CacheF16 {
  HC_INLINE Floats key(const uint8_t* tile, uint32_t, uint32_t d) { return load_half(tile + 32 * size_t(d)); }
  HC_INLINE Floats value(const uint8_t* position, uint32_t, uint32_t d) { return load_half(position + 2 * size_t(d)); }
};
struct CacheF32 {
  HC_INLINE Floats key(const uint8_t* tile, uint32_t, uint32_t d) {
    return load(reinterpret_cast<const float*>(tile + 64 * size_t(d)));
  }
  HC_INLINE Floats value(const uint8_t* position, uint32_t, uint32_t d) {
    return load(reinterpret_cast<const float*>(position + 4 * size_t(d)));
  }
};
struct CacheQ8_0 {
  HC_INLINE Floats key(const uint8_t* tile, uint32_t key_dim, uint32_t d) {
    const uint8_t* scales = tile + 16 * size_t(key_dim) + 32 * size_t(d / 32);
    return mul(load_s8(tile + 16 * size_t(d)), load_half(scales));
  }
  HC_INLINE Floats value(const uint8_t* position, uint32_t value_dim, uint32_t d) {
    uint16_t scale;
    memcpy(&scale, position + value_dim + 2 * size_t(d / 32), sizeof scale);
    return mul(load_s8(position + d), broadcast(half(scale)));
  }
};

/// Scores of kQueries query heads at the 16 positions of a tile.
template <class Cache, int kQueries>
HC_INLINE void score_tile(const AttendChunkArgs& a, uint32_t query, uint32_t t) {
  constexpr uint32_t kTilesPerPage = kPositionsPerPage / kLanes;
  const uint8_t* tile = a.key_pages[t / kTilesPerPage] + (t % kTilesPerPage) * a.key_tile_bytes;
  const float* q = a.queries + size_t(query) * a.key_dim;
  Floats s[kQueries];
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) s[i] = broadcast(0.0f);
  for (uint32_t d = 0; d < a.key_dim; ++d) {
    const Floats k = Cache::key(tile, a.key_dim, d);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) s[i] = fma(broadcast(q[size_t(i) * a.key_dim + d]), k, s[i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) {
    Floats v = mul(s[i], broadcast(a.scale));
    if (a.softcap != 0) v = soft_cap(v, a.softcap);
    store(a.scores + (query + uint32_t(i)) * size_t(kChunkPositions) + t * kLanes, v);
  }
}

/// Σ p · V for 16 elements of kQueries heads.
template <class Cache, int kQueries>
HC_INLINE void weigh_values(const AttendChunkArgs& a, uint32_t query, uint32_t d) {
  const float* p = a.scores + size_t(query) * kChunkPositions;
  Floats acc[kQueries];
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) acc[i] = broadcast(0.0f);
  for (uint32_t j = a.first; j < a.last; ++j) {
    const uint8_t* position = a.value_pages[j / kPositionsPerPage] + (j % kPositionsPerPage) * a.value_position_bytes;
    const Floats v = Cache::value(position, a.value_dim, d);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) acc[i] = fma(broadcast(p[size_t(i) * kChunkPositions + j]), v, acc[i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i)
    store(a.out + (query + uint32_t(i)) * softmax_floats(a.value_dim) + kLanes + d, acc[i]);
}

/// Scores of one head become exponentials; writes their maximum and sum. Lanes outside [first, last) become 0.
HC_INLINE void softmax_part(const AttendChunkArgs& a, uint32_t query) {
  float* s = a.scores + size_t(query) * kChunkPositions;
  const uint32_t first_tile = a.first / kLanes, end_tile = (a.last + kLanes - 1) / kLanes;
  const float minus_infinity = -__builtin_inff();
  for (uint32_t j = first_tile * kLanes; j < a.first; ++j) s[j] = minus_infinity;
  for (uint32_t j = a.last; j < end_tile * kLanes; ++j) s[j] = minus_infinity;
  Floats largest = broadcast(minus_infinity);
  for (uint32_t t = first_tile; t < end_tile; ++t) largest = max(load(s + t * kLanes), largest);
  const float m = max_lane(largest);
  Floats total = broadcast(0.0f);
  for (uint32_t t = first_tile; t < end_tile; ++t) {
    const Floats e = exponential(sub(load(s + t * kLanes), broadcast(m)));
    store(s + t * kLanes, e);
    total = add(total, e);
  }
  float* out = a.out + query * softmax_floats(a.value_dim);
  out[0] = m;
  out[1] = sum(total);
}

template <class Cache, int kQueries>
static void attend_queries(const AttendChunkArgs& a, uint32_t query) {
  for (uint32_t t = a.first / kLanes; t * kLanes < a.last; ++t) score_tile<Cache, kQueries>(a, query, t);
  for (uint32_t i = 0; i < uint32_t(kQueries); ++i) softmax_part(a, query + i);
  for (uint32_t d = 0; d < a.value_dim; d += kLanes) weigh_values<Cache, kQueries>(a, query, d);
}

template <class Cache>
static void attend_in(const AttendChunkArgs& a) {
  uint32_t query = 0;
  for (; query + 4 <= a.n_queries; query += 4) attend_queries<Cache, 4>(a, query);
  if (a.n_queries - query == 3) return attend_queries<Cache, 3>(a, query);
  if (a.n_queries - query == 2) return attend_queries<Cache, 2>(a, query);
  if (a.n_queries - query == 1) attend_queries<Cache, 1>(a, query);
}

static void attend_chunk(const AttendChunkArgs& a) {
  if (a.element == KvElement::kF16) return attend_in<CacheF16>(a);
  if (a.element == KvElement::kF32) return attend_in<CacheF32>(a);
  attend_in<CacheQ8_0>(a);
}

static void attend_merge(float* state, const float* chunk, uint32_t value_dim) {
  const float m = state[0] > chunk[0] ? state[0] : chunk[0];
  const float before = exponential(state[0] - m), now = exponential(chunk[0] - m);
  state[0] = m;
  state[1] = first(fma(broadcast(state[1]), broadcast(before), broadcast(chunk[1] * now)));
  for (uint32_t d = kLanes; d < kLanes + value_dim; d += kLanes)
    store(state + d, fma(load(state + d), broadcast(before), mul(load(chunk + d), broadcast(now))));
}

static void attend_finish(float* state, const float* sink, uint32_t value_dim, float* out) {
  float rescale = 1, total = state[1];
  if (sink) {
    const float m = state[0] > *sink ? state[0] : *sink;
    rescale = exponential(state[0] - m);
    total = first(fma(broadcast(total), broadcast(rescale), broadcast(exponential(*sink - m))));
  }
  for_lanes(value_dim, [&](uint32_t d, uint32_t count) __attribute__((always_inline)) {
    const Floats v = mul(load(state + kLanes + d), broadcast(rescale));
    store_lanes(out + d, div(v, broadcast(total)), count);
  });
}
