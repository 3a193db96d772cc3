// Attention of a chunk of positions, and the merge of chunks. Scores have one position per lane and are summed over the
// head sequentially; the weighted sum of V has one element per lane and is summed over positions sequentially.
// So neither needs a reduction whose order could differ. Of a long context the cache comes from memory: every loop asks
// for the page that it, or the loop after it, reads next (without that, a third of the bandwidth is left unused).

struct CacheF16 {
  static constexpr uint32_t kBytes = 2;  // of an element
  HC_INLINE Floats key(const uint8_t* tile, uint32_t, uint32_t d) { return load_half(tile + 32 * size_t(d)); }
  HC_INLINE Floats value(const uint8_t* position, uint32_t, uint32_t d) { return load_half(position + 2 * size_t(d)); }
};
struct CacheF32 {
  static constexpr uint32_t kBytes = 4;
  HC_INLINE Floats key(const uint8_t* tile, uint32_t, uint32_t d) {
    return load(reinterpret_cast<const float*>(tile + 64 * size_t(d)));
  }
  HC_INLINE Floats value(const uint8_t* position, uint32_t, uint32_t d) {
    return load(reinterpret_cast<const float*>(position + 4 * size_t(d)));
  }
};
struct CacheQ8_0 {
  static constexpr uint32_t kBytes = 1;
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

template <int kQueries>
struct GroupOf {
  static constexpr int kSize = kQueries;
};
/// Queries are taken in groups of kMostQueries, the rest in groups of 6, 4, 3, 2 and 1: calls body(GroupOf, first
/// query).
template <int kQueries, class Body>
HC_INLINE void for_query_groups(uint32_t query, uint32_t n, Body body) {
  for (; query + uint32_t(kQueries) <= n; query += uint32_t(kQueries)) body(GroupOf<kQueries>{}, query);
  if constexpr (kQueries > 1) for_query_groups<(kQueries > 4 ? kQueries - 2 : kQueries - 1)>(query, n, body);
}

/// A group's queries lie side by side: [key_dim][queries of the group].
static void attend_pack(const float* queries, uint32_t n, uint32_t key_dim, float* out) {
  for_query_groups<kMostQueries>(0, n, [&](auto group, uint32_t query) __attribute__((always_inline)) {
    constexpr uint32_t kQueries = uint32_t(decltype(group)::kSize);
    float* to = out + size_t(query) * key_dim;
    for (uint32_t i = 0; i < kQueries; ++i)
      for (uint32_t d = 0; d < key_dim; ++d) to[size_t(d) * kQueries + i] = queries[size_t(query + i) * key_dim + d];
  });
}

/// What a group's queries see of the chunk.
template <int kQueries>
struct QueryGroup {
  uint32_t first[kQueries], last[kQueries];
  float scale[kQueries];
  float* out[kQueries];
  uint32_t some_first = kChunkPositions, some_last = 0;  // positions that some see
  uint32_t all_first = 0, all_last = kChunkPositions;    // that all see who see any; never the wrong way round
};

template <int kQueries>
HC_INLINE QueryGroup<kQueries> group_at(const AttendChunkArgs& a, uint32_t query) {
  QueryGroup<kQueries> g;
  for (uint32_t i = 0; i < uint32_t(kQueries); ++i) {
    const AttendRow& row = a.rows[(query + i) / a.n_heads];
    g.first[i] = row.first;
    g.last[i] = row.last;
    g.scale[i] = row.scale;
    g.out[i] = row.out + (query + i) % a.n_heads * softmax_floats(a.value_dim);
    if (row.first >= row.last) continue;
    g.some_first = row.first < g.some_first ? row.first : g.some_first;
    g.some_last = row.last > g.some_last ? row.last : g.some_last;
    g.all_first = row.first > g.all_first ? row.first : g.all_first;
    g.all_last = row.last < g.all_last ? row.last : g.all_last;
  }
  if (g.all_last < g.all_first) g.all_last = g.all_first;
  return g;
}

/// Scores of a group at the 16 positions of each of kTiles tiles, of one page.
template <class Cache, int kQueries, int kTiles>
HC_INLINE void score_tiles(const AttendChunkArgs& a, const float* q, const QueryGroup<kQueries>& g, uint32_t t,
                           float* scores) {
  constexpr uint32_t kTilesPerPage = kPositionsPerPage / kLanes;
  const uint32_t page = t / kTilesPerPage;
  const uint8_t* tile = a.pages.keys[page] + (t % kTilesPerPage) * a.pages.key_tile_bytes;
  const bool last_page = (page + 1) * kPositionsPerPage >= g.some_last;
  const uint8_t* next_page = last_page ? a.pages.values[g.some_first / kPositionsPerPage] : a.pages.keys[page + 1];
  const uint8_t* ahead = next_page + (tile - a.pages.keys[page]);
  Floats s[kTiles * kQueries];
#pragma GCC unroll 16
  for (int i = 0; i < kTiles * kQueries; ++i) s[i] = broadcast(0.0f);
  for (uint32_t d = 0; d < a.key_dim; ++d, q += kQueries) {
#pragma GCC unroll 4
    for (int b = 0; b < kTiles; ++b) {
      __builtin_prefetch(ahead + size_t(b) * a.pages.key_tile_bytes + size_t(d) * (kLanes * Cache::kBytes));
      const Floats k = Cache::key(tile + size_t(b) * a.pages.key_tile_bytes, a.key_dim, d);
#pragma GCC unroll 8
      for (int i = 0; i < kQueries; ++i) s[b * kQueries + i] = fma(broadcast(q[i]), k, s[b * kQueries + i]);
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < kTiles; ++b) {
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i)
      store(scores + i * int(kChunkPositions) + (t + uint32_t(b)) * kLanes,
            mul(s[b * kQueries + i], broadcast(g.scale[i])));
  }
}

template <class Cache, int kQueries>
HC_INLINE void score(const AttendChunkArgs& a, const float* q, const QueryGroup<kQueries>& g, float* scores) {
  constexpr int kTiles = kMostSums / kQueries < 4 ? kMostSums / kQueries : 4;
  const uint32_t first = g.some_first / kLanes, end = (g.some_last + kLanes - 1) / kLanes;
  uint32_t t = first;
  for (; t < end && t % kTiles != 0; ++t) score_tiles<Cache, kQueries, 1>(a, q, g, t, scores);
  for (; t + kTiles <= end; t += kTiles) score_tiles<Cache, kQueries, kTiles>(a, q, g, t, scores);
  for (; t < end; ++t) score_tiles<Cache, kQueries, 1>(a, q, g, t, scores);
  if (a.softcap == 0) return;
  for (int i = 0; i < kQueries; ++i)
    for (float *p = scores + i * int(kChunkPositions) + first * kLanes, *last = p + (end - first) * kLanes; p < last;
         p += kLanes)
      store(p, soft_cap(load(p), a.softcap));
}

/// Scores of one query become exponentials; writes their maximum and sum. Lanes outside [first, last) become 0.
HC_INLINE void softmax_part(float* s, uint32_t first, uint32_t last, float* out) {
  const uint32_t first_tile = first / kLanes, end_tile = (last + kLanes - 1) / kLanes;
  const float minus_infinity = -__builtin_inff();
  for (uint32_t j = first_tile * kLanes; j < first; ++j) s[j] = minus_infinity;
  for (uint32_t j = last; j < end_tile * kLanes; ++j) s[j] = minus_infinity;
  Floats largest = broadcast(minus_infinity);
  for (uint32_t t = first_tile; t < end_tile; ++t) largest = max(load(s + t * kLanes), largest);
  const float m = max_lane(largest);
  Floats total = broadcast(0.0f);
  for (uint32_t t = first_tile; t < end_tile; ++t) {
    const Floats e = exponential(sub(load(s + t * kLanes), broadcast(m)));
    store(s + t * kLanes, e);
    total = add(total, e);
  }
  out[0] = m;
  out[1] = sum(total);
}

/// Σ p · V for kBlocks · 16 elements of a group, each query over its own positions in order.
template <class Cache, int kQueries, int kBlocks>
HC_INLINE void weigh_values(const AttendChunkArgs& a, const float* p, const QueryGroup<kQueries>& g, uint32_t d) {
  Floats acc[kBlocks * kQueries];
#pragma GCC unroll 16
  for (int i = 0; i < kBlocks * kQueries; ++i) acc[i] = broadcast(0.0f);
  const auto value = [&](uint32_t j, int block) __attribute__((always_inline)) {
    const uint8_t* position =
        a.pages.values[j / kPositionsPerPage] + (j % kPositionsPerPage) * a.pages.value_position_bytes;
    return Cache::value(position, a.value_dim, d + uint32_t(block) * kLanes);
  };
  const auto weight = [&](uint32_t j, int i)
                          __attribute__((always_inline)) { return broadcast(p[i * int(kChunkPositions) + int(j)]); };
  // A selection, not a weight of 0: what a later row has put there may be no number.
  const auto for_some = [&](uint32_t first, uint32_t last) __attribute__((always_inline)) {
    for (uint32_t j = first; j < last; ++j) {
      const Floats at = broadcast(float(j));
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        const Floats v = value(j, b);
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i) {
          Floats& sum = acc[b * kQueries + i];
          const Floats from = select_less(at, broadcast(float(g.first[i])), sum, fma(weight(j, i), v, sum));
          sum = select_less(at, broadcast(float(g.last[i])), from, sum);
        }
      }
    }
  };
  for_some(g.some_first, g.all_first);
  for (uint32_t j = g.all_first, end; j < g.all_last; j = end) {
    const uint32_t page = j / kPositionsPerPage, page_end = (page + 1) * kPositionsPerPage;
    end = page_end < g.all_last ? page_end : g.all_last;
    const uint8_t* v = a.pages.values[page] + (j - page * kPositionsPerPage) * a.pages.value_position_bytes;
    const uint8_t* next_page = end < g.all_last ? a.pages.values[page + 1] : a.next ? a.next : a.pages.values[page];
    const uint8_t* ahead = next_page + (v - a.pages.values[page]) + size_t(d) * Cache::kBytes;
    for (const float *w = p + j, *last = p + end; w < last; ++w) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        constexpr uint32_t kBlockBytes = kLanes * Cache::kBytes;
        if (uint32_t(b) * kBlockBytes % 64 == 0) __builtin_prefetch(ahead + uint32_t(b) * kBlockBytes);
        const Floats x = Cache::value(v, a.value_dim, d + uint32_t(b) * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i)
          acc[b * kQueries + i] = fma(broadcast(w[size_t(i) * kChunkPositions]), x, acc[b * kQueries + i]);
      }
      v += a.pages.value_position_bytes;
      ahead += a.pages.value_position_bytes;
    }
  }
  for_some(g.all_last, g.some_last);
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    if (g.first[i] >= g.last[i]) continue;
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) store(g.out[i] + kLanes + d + uint32_t(b) * kLanes, acc[b * kQueries + i]);
  }
}

template <class Cache, int kQueries>
HC_INLINE void weigh(const AttendChunkArgs& a, const float* p, const QueryGroup<kQueries>& g) {
  constexpr int kBlocks = kMostSums / kQueries < 4 ? kMostSums / kQueries : 4;
  uint32_t d = 0;
  for (; d + kBlocks * kLanes <= a.value_dim; d += kBlocks * kLanes) weigh_values<Cache, kQueries, kBlocks>(a, p, g, d);
  for (; d < a.value_dim; d += kLanes) weigh_values<Cache, kQueries, 1>(a, p, g, d);
}

template <class Cache, int kQueries>
static void attend_queries(const AttendChunkArgs& a, uint32_t query) {
  const QueryGroup<kQueries> g = group_at<kQueries>(a, query);
  if (g.some_first >= g.some_last) return;
  const float* q = a.queries + size_t(query) * a.key_dim;
  float* scores = a.scores + size_t(query) * kChunkPositions;
  score<Cache, kQueries>(a, q, g, scores);
  for (int i = 0; i < kQueries; ++i)
    if (g.first[i] < g.last[i]) softmax_part(scores + i * int(kChunkPositions), g.first[i], g.last[i], g.out[i]);
  weigh<Cache, kQueries>(a, scores, g);
}

template <class Cache>
static void attend_in(const AttendChunkArgs& a) {
  for_query_groups<kMostQueries>(0, a.n_rows * a.n_heads, [&](auto group, uint32_t query) {
    attend_queries<Cache, decltype(group)::kSize>(a, query);
  });
}

static void attend_chunk(const AttendChunkArgs& a) {
  if (a.pages.element == KvElement::kF16) return attend_in<CacheF16>(a);
  if (a.pages.element == KvElement::kF32) return attend_in<CacheF32>(a);
  attend_in<CacheQ8_0>(a);
}

template <class Cache>
static void widen(const ChunkPages& pages, uint32_t first, uint32_t last, uint32_t key_dim, uint32_t value_dim,
                  float* keys, float* values) {
  constexpr uint32_t kTilesPerPage = kPositionsPerPage / kLanes;
  const uint32_t value_floats = (value_dim + kLanes - 1) / kLanes * kLanes;
  for (uint32_t t = first / kLanes; t * kLanes < last; ++t) {
    const uint8_t* tile = pages.keys[t / kTilesPerPage] + (t % kTilesPerPage) * pages.key_tile_bytes;
    float* to = keys + size_t(t) * key_dim * kLanes;
    for (uint32_t d = 0; d < key_dim; ++d) store(to + size_t(d) * kLanes, Cache::key(tile, key_dim, d));
  }
  for (uint32_t j = first; j < last; ++j) {
    const uint8_t* position =
        pages.values[j / kPositionsPerPage] + (j % kPositionsPerPage) * pages.value_position_bytes;
    float* to = values + size_t(j) * value_floats;
    for (uint32_t d = 0; d < value_dim; d += kLanes) store(to + d, Cache::value(position, value_dim, d));
  }
}

static void attend_widen(const ChunkPages& pages, uint32_t first, uint32_t last, uint32_t key_dim, uint32_t value_dim,
                         float* keys, float* values) {
  if (pages.element == KvElement::kF16) return widen<CacheF16>(pages, first, last, key_dim, value_dim, keys, values);
  widen<CacheQ8_0>(pages, first, last, key_dim, value_dim, keys, values);
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
