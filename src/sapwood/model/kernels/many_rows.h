// Many rows against one converted tile, in strips: scores of all rows of a strip, their softmax, then their values.
//
// A strip is what lets the keys stay in the nearest cache while they are read for row tile after row tile, and then the
// values. Results go to a sink: begin(strip) takes maxima and sums, put(row, d, lo, hi) 16 weighted values of one row.
#pragma once

#include "kv_tile.h"
#include "partials.h"
#include "softmax.h"
#include "tile.h"

namespace sapwood {

constexpr int kStripRows = 4 * kTileRows;

// One strip's results. Rows with no keys have neither.
struct Strip {
  int first, count;  // rows of the block
  KeyRange keys[kStripRows];
  float max[kStripRows], sum[kStripRows];
  alignas(32) float scores[kStripRows * kTileKeys];
};

struct RowBlock {
  const float* q;        // [rows][ld], scaled
  const int* positions;  // [rows]
  int rows;
};

// Keys that every row with any sees; where there are none, an empty range at the tile's end.
template <int R>
SAPWOOD_INLINE KeyRange common_to(const KeyRange* keys) {
  KeyRange all{0, kTileKeys};
  for (int r = 0; r < R; ++r)
    if (!keys[r].empty()) all = {std::max(all.first, keys[r].first), std::min(all.last, keys[r].last)};
  return all.empty() ? KeyRange{kTileKeys, kTileKeys} : all;
}

template <int R>
SAPWOOD_INLINE int last_of(const KeyRange* keys) {
  int last = 0;
  for (int r = 0; r < R; ++r)
    if (!keys[r].empty()) last = std::max(last, keys[r].last);
  return last;
}

template <int R>
SAPWOOD_INLINE void score_rows(const AttentionShape& s, const float* q, const KeyRange* seen, const float* keys,
                               float* scores) {
  const int last = last_of<R>(seen);
  f32x8 lo[R], hi[R];
  for (int c = 0; c < last; c += 16) {
    tile<R>(q, s.ld, keys + c, kTileKeys, s.heads.head_dim, lo, hi);
    for (int r = 0; r < R; ++r) store(scores + r * kTileKeys + c, lo[r]), store(scores + r * kTileKeys + c + 8, hi[r]);
  }
}

// weights · values for one panel of 16 dimensions. A row reads the values of its own keys alone, never a zero times
// somebody's later value (which may be infinite): its first keys, then those common to all rows, then its last.
template <int R>
SAPWOOD_INLINE void mix_rows(const float* weights, const KeyRange* keys, KeyRange common, const float* values, int ld,
                             f32x8 (&lo)[R], f32x8 (&hi)[R]) {
  const auto own = [&](int r, int first, int last) __attribute__((always_inline)) {
    if (first >= last) return;
    f32x8 one_lo[1] = {lo[r]}, one_hi[1] = {hi[r]};
    tile_on<1>(weights + r * kTileKeys + first, kTileKeys, values + first * ld, ld, last - first, one_lo, one_hi);
    lo[r] = one_lo[0], hi[r] = one_hi[0];
  };
  for (int r = 0; r < R; ++r) {
    lo[r] = hi[r] = splat(0.0f);
    own(r, keys[r].first, std::min(common.first, keys[r].last));
  }
  tile_on<R>(weights + common.first, kTileKeys, values + common.first * ld, ld, common.last - common.first, lo, hi);
  for (int r = 0; r < R; ++r) own(r, std::max(common.last, keys[r].first), keys[r].last);
}

template <int R, class Sink>
SAPWOOD_INLINE void put_rows(const AttentionShape& s, const Strip& strip, int row, const float* values, Sink& sink) {
  const KeyRange* keys = strip.keys + row;
  if (last_of<R>(keys) == 0) return;
  const KeyRange common = common_to<R>(keys);
  f32x8 lo[R], hi[R];
  for (int d = 0; d < s.ld; d += 16) {
    mix_rows<R>(strip.scores + row * kTileKeys, keys, common, values + d, s.ld, lo, hi);
    for (int r = 0; r < R; ++r)
      if (!keys[r].empty()) sink.put(row + r, d, lo[r], hi[r]);
  }
}

template <class Sink>
void attend_strip(const AttentionShape& s, const RowBlock& block, int tile, KvTile kv, Strip& strip, Sink& sink) {
  bool any = false;
  for (int r = 0; r < strip.count; ++r) {
    strip.keys[r] = visible(block.positions[strip.first + r], tile, s.window);
    any = any || !strip.keys[r].empty();
  }
  if (!any) return;
  in_tiles(strip.count, [&](int row, int n) {
    with_rows(n, [&](auto r) {
      score_rows<r>(s, block.q + static_cast<ptrdiff_t>(strip.first + row) * s.ld, strip.keys + row, kv.keys,
                    strip.scores + row * kTileKeys);
    });
  });
  for (int r = 0; r < strip.count; ++r)
    if (!strip.keys[r].empty()) softmax(strip.scores + r * kTileKeys, strip.keys[r], &strip.max[r], &strip.sum[r]);
  sink.begin(strip);
  in_tiles(strip.count, [&](int row, int n) {
    with_rows(n, [&](auto r) { put_rows<r>(s, strip, row, kv.values, sink); });
  });
}

template <class Sink>
void attend_rows(const AttentionShape& s, const RowBlock& block, int tile, KvTile kv, Strip& strip, Sink& sink) {
  for (strip.first = 0; strip.first < block.rows; strip.first += kStripRows) {
    strip.count = std::min(kStripRows, block.rows - strip.first);
    attend_strip(s, block, tile, kv, strip, sink);
  }
}

// Merges tile after tile into what each row knows: maximum, sum, values [ld].
struct OnlineSink {
  float *max, *sum, *values;
  int ld;
  int first = 0;
  alignas(32) float old[kStripRows], fresh[kStripRows];

  void begin(const Strip& strip) {
    first = strip.first;
    for (int r = 0; r < kStripRows; ++r) {
      old[r] = fresh[r] = 0.0f;
      if (r >= strip.count || strip.keys[r].empty()) continue;
      const Meeting m = meet(max[first + r], strip.max[r]);
      max[first + r] = m.top, old[r] = m.old, fresh[r] = m.fresh;
    }
    for (int r = 0; r < kStripRows; r += kLanes)
      store(old + r, exp8(load(old + r))), store(fresh + r, exp8(load(fresh + r)));
    for (int r = 0; r < strip.count; ++r)
      if (!strip.keys[r].empty()) sum[first + r] = merged(sum[first + r], old[r], strip.sum[r], fresh[r]);
  }

  SAPWOOD_INLINE void put(int row, int d, f32x8 lo, f32x8 hi) {
    float* at = values + static_cast<ptrdiff_t>(first + row) * ld + d;
    const f32x8 a = splat(old[row]), b = splat(fresh[row]);
    store(at, merged(load(at), a, lo, b));
    store(at + kLanes, merged(load(at + kLanes), a, hi, b));
  }
};

// Keeps the partials of each row for a later join.
struct PartialSink {
  const Slot* slots;  // [rows], of this tile
  int first = 0;

  void begin(const Strip& strip) {
    first = strip.first;
    for (int r = 0; r < strip.count; ++r)
      if (!strip.keys[r].empty()) *slots[first + r].max = strip.max[r], *slots[first + r].sum = strip.sum[r];
  }

  SAPWOOD_INLINE void put(int row, int d, f32x8 lo, f32x8 hi) {
    float* at = slots[first + row].values + d;
    store(at, lo);
    store(at + kLanes, hi);
  }
};

}  // namespace sapwood
