#include "partials.h"

#include <algorithm>

namespace sapwood {

namespace {

constexpr int kVectors = 8;  // of a row's values that are merged side by side, so that no chain waits for itself

// out[0..8·W) from `tiles` partials of `ld` floats each.
template <int W>
void merge_values(const float* old, const float* fresh, const float* values, int tiles, int ld, f32x8 (&sum)[W]) {
  for (int w = 0; w < W; ++w) sum[w] = splat(0.0f);
  for (int t = 0; t < tiles; ++t, values += ld) {
    const f32x8 a = splat(old[t]), b = splat(fresh[t]);
    for (int w = 0; w < W; ++w) sum[w] = merged(sum[w], a, load(values + w * kLanes), b);
  }
}

void divide_into(float* out, const float* values, int count, float sum) {
  for (int d = 0; d < count; ++d) out[d] = values[d] / sum;
}

template <int W>
void join_panel(const float* old, const float* fresh, const float* values, int tiles, int ld, float total, float* out,
                int count) {
  f32x8 sum[W];
  merge_values<W>(old, fresh, values, tiles, ld, sum);
  float row[W * kLanes];
  for (int w = 0; w < W; ++w) store(row + w * kLanes, sum[w]);
  divide_into(out, row, count, total);
}

}  // namespace

Partials::Partials(const AttentionShape& s, const Span& span) : s_(s), rows_(span.rows * s.heads.heads) {
  first_tile_ = first_seen(span.start, s.window) / kTileKeys;
  tiles_ = (span.start + span.rows - 1) / kTileKeys - first_tile_ + 1;
  padded_tiles_ = (tiles_ + kLanes - 1) / kLanes * kLanes;
  row_ = 2 * static_cast<size_t>(padded_tiles_) + static_cast<size_t>(tiles_) * s.ld;
}

Slot Partials::slot(int row, int tile) const {
  float* at = at_ + static_cast<size_t>(row) * row_;
  const int t = tile - first_tile_;
  return {at + t, at + padded_tiles_ + t, at + 2 * static_cast<size_t>(padded_tiles_) + static_cast<size_t>(t) * s_.ld};
}

void Partials::join(int row, int position, float* scratch, float* out) const {
  const int from = first_seen(position, s_.window) / kTileKeys;
  const int tiles = position / kTileKeys - from + 1;
  const Slot slot = this->slot(row, from);
  float *old = scratch, *fresh = scratch + padded_tiles_, max = kNone, sum = 0.0f;
  for (int t = 0; t < tiles; ++t) {
    const Meeting m = meet(max, slot.max[t]);
    max = m.top, old[t] = m.old, fresh[t] = m.fresh;
  }
  for (int t = tiles; t % kLanes != 0; ++t) old[t] = fresh[t] = 0.0f;
  for (int t = 0; t < tiles; t += kLanes) store(old + t, exp8(load(old + t))), store(fresh + t, exp8(load(fresh + t)));
  for (int t = 0; t < tiles; ++t) sum = merged(sum, old[t], slot.sum[t], fresh[t]);
  const int dim = s_.heads.head_dim;
  int d = 0;
  for (; d + kVectors * kLanes <= dim; d += kVectors * kLanes)
    join_panel<kVectors>(old, fresh, slot.values + d, tiles, s_.ld, sum, out + d, kVectors * kLanes);
  for (; d < dim; d += kLanes)
    join_panel<1>(old, fresh, slot.values + d, tiles, s_.ld, sum, out + d, std::min(kLanes, dim - d));
}

}  // namespace sapwood
