#include "one_query.h"

#include "kv_format.h"
#include "softmax.h"

namespace sapwood {

namespace {

// A few lines at a time, for asked for at once they would block the loads behind them: beside each step of 8 dimensions
// of 16 keys, 32 dimensions of a quarter of the same keys of the next tile.
template <class Kv>
SAPWOOD_INLINE void fetch_keys(const uint8_t* const* next, ptrdiff_t head, int d) {
  const int step = d / kColumnDims;
  for (int i = 0; i < 4; ++i) fetch(next[step % 4 * 4 + i] + head + d / 32 * 32 * Kv::kBytes, 32 * Kv::kBytes);
}

// scores[R][64] of keys first.. to last.., whole columns of 16.
template <class Kv, int R>
SAPWOOD_INLINE void score(const AttentionShape& s, const uint8_t* const* keys, KeyRange seen, const float* q,
                          float* scores, const uint8_t* const* next, ptrdiff_t head) {
  const int dim = s.heads.head_dim;
  for (int j = seen.first / kColumnKeys * kColumnKeys; j < seen.last; j += kColumnKeys) {
    f32x8 low[R], high[R];
    for (int r = 0; r < R; ++r) low[r] = high[r] = splat(0.0f);
    for (int d = 0; d < dim; d += kColumnDims) {
      const typename Kv::Columns columns(keys + j, d, dim);
      fetch_keys<Kv>(next + j, head, d);
#pragma GCC unroll 8
      for (int i = 0; i < kColumnDims; ++i) {
        const KeyLanes lanes = columns[i];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const f32x8 x = splat(q[r * s.ld + d + i]);
          low[r] = fma(x, lanes.low, low[r]);
          high[r] = fma(x, lanes.high, high[r]);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      float* at = scores + r * kTileKeys + j;
      store(at, low[r]), store(at + kLanes, high[r]);
    }
  }
}

// weights · values for W vectors of dimensions from d on.
template <class Kv, int R, int W>
SAPWOOD_INLINE void mix(const uint8_t* const* values, KeyRange seen, int d, int dim, const float* weights,
                        const Slot* slots, const uint8_t* const* next, ptrdiff_t head) {
  f32x8 sum[R][W];
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) sum[r][w] = splat(0.0f);
  for (int j = seen.first; j < seen.last; ++j) {
    const float scale = Kv::scale(values[j], dim);
    fetch(next[j] + head + d * Kv::kBytes, W * kLanes * Kv::kBytes);
    f32x8 x[R];
    for (int r = 0; r < R; ++r) x[r] = splat(weights[r * kTileKeys + j]);
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w) {
      const f32x8 v = Kv::values(values[j], d + w * kLanes, scale);
      for (int r = 0; r < R; ++r) sum[r][w] = fma(x[r], v, sum[r][w]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) store(slots[r].values + d + w * kLanes, sum[r][w]);
}

template <class Kv, int R>
void attend(const AttentionShape& s, const TileOfQuery& tile, const float* q, const Slot* slots) {
  const int dim = s.heads.head_dim;
  const ptrdiff_t head = static_cast<ptrdiff_t>(tile.kv_head) * Kv::row_bytes(dim);
  const uint8_t* rows[kTileKeys];
  alignas(32) float scores[R * kTileKeys];
  for (int j = 0; j < kTileKeys; ++j) rows[j] = tile.rows->k[j] + head;
  score<Kv, R>(s, rows, tile.keys, q, scores, tile.next->k, head);
  for (int r = 0; r < R; ++r) softmax(scores + r * kTileKeys, tile.keys, slots[r].max, slots[r].sum);
  for (int j = 0; j < kTileKeys; ++j) rows[j] = tile.rows->v[j] + head;
  constexpr int kWide = R == 1 ? 8 : R == 4 ? 2 : 4;
  int d = 0;
  for (; d + kWide * kLanes <= dim; d += kWide * kLanes)
    mix<Kv, R, kWide>(rows, tile.keys, d, dim, scores, slots, tile.next->v, head);
  for (; d < dim; d += kLanes) mix<Kv, R, 1>(rows, tile.keys, d, dim, scores, slots, tile.next->v, head);
}

template <class Kv>
void attend_some(int heads, const AttentionShape& s, const TileOfQuery& tile, const float* q, const Slot* slots) {
  switch (heads) {
    case 1: return attend<Kv, 1>(s, tile, q, slots);
    case 2: return attend<Kv, 2>(s, tile, q, slots);
    case 3: return attend<Kv, 3>(s, tile, q, slots);
    default: return attend<Kv, 4>(s, tile, q, slots);
  }
}

}  // namespace

bool reads_directly(const AttentionShape& s) { return s.heads.head_dim % kLanes == 0 && s.group <= kMostHeads; }

void attend_one(const AttentionShape& s, KvType type, const TileOfQuery& tile, const float* q, const Slot* slots) {
  with_kv(type, [&](auto kv) {
    const int turns = (s.group + kMostHeadsAtOnce - 1) / kMostHeadsAtOnce;
    for (int i = 0, first = 0; i < turns; ++i) {
      const int heads = (s.group - first + turns - i - 1) / (turns - i);
      attend_some<decltype(kv)>(heads, s, tile, q + static_cast<ptrdiff_t>(first) * s.ld, slots + first);
      first += heads;
    }
  });
}

}  // namespace sapwood
