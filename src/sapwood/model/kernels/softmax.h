// The softmax of a tile and the rule by which tiles meet; both paths, one query and many rows, go through here.
#pragma once

#include <algorithm>
#include <limits>

#include "attention.h"
#include "simd.h"

namespace sapwood {

constexpr float kNone = -std::numeric_limits<float>::infinity();

struct KeyRange {
  int first, last;  // keys of the tile that a row may see: [first, last)
  bool empty() const { return first >= last; }
};

// `window` 0 sees everything; w the last w positions, the query's own included.
inline int first_seen(int position, int window) { return window > 0 ? std::max(0, position - window + 1) : 0; }

inline KeyRange visible(int position, int tile, int window) {
  const int base = tile * kTileKeys;
  return {std::max(0, first_seen(position, window) - base), std::min(kTileKeys, position + 1 - base)};
}

SAPWOOD_INLINE float top_lane(f32x8 v) {
#ifdef SAPWOOD_AVX2
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#else
  return max_lanes(v);
#endif
}

// Turns a row of scores into exp(score - max) with zeros outside `keys`; lanes are key mod 8, summed by one tree.
SAPWOOD_INLINE void softmax(float* scores, KeyRange keys, float* max, float* sum) {
  std::fill(scores, scores + keys.first, kNone);
  std::fill(scores + keys.last, scores + kTileKeys, kNone);
  f32x8 top = load(scores), other = load(scores + kLanes);
  for (int j = 2 * kLanes; j < kTileKeys; j += 2 * kLanes) {
    top = sapwood::max(top, load(scores + j));
    other = sapwood::max(other, load(scores + j + kLanes));
  }
  *max = top_lane(sapwood::max(top, other));
  const f32x8 from = splat(*max);
  f32x8 total = splat(0.0f);
  for (int j = 0; j < kTileKeys; j += kLanes) {
    const f32x8 e = exp8(load(scores + j) - from);
    store(scores + j, e);
    total = total + e;
  }
  *sum = sum_lanes(total);
}

// The online-softmax merge; the only place where tiles meet. A row with maximum `old_max` meets a tile with `max`: what
// it knows counts by exp(old), the tile by exp(fresh).
struct Meeting {
  float top, old, fresh;
};

SAPWOOD_INLINE Meeting meet(float old_max, float max) {
  const float top = max > old_max ? max : old_max;
  return {top, old_max - top, max - top};
}

SAPWOOD_INLINE float merged(float into, float old_scale, float value, float fresh_scale) {
  return __builtin_fmaf(into, old_scale, value * fresh_scale);
}

SAPWOOD_INLINE f32x8 merged(f32x8 into, f32x8 old_scale, f32x8 value, f32x8 fresh_scale) {
  return fma(into, old_scale, value * fresh_scale);
}

}  // namespace sapwood
