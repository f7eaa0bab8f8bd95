#include "kv_tile.h"

#include <algorithm>

#include "kv_format.h"

namespace sapwood {

namespace {

// The last dimensions of 16 rows, where they are no whole vector: copied out, so that nothing is read beyond a page.
struct Tail {
  Tail(const uint8_t* const* rows, int at, int bytes) {
    for (int j = 0; j < kColumnKeys; ++j) {
      std::copy(rows[j] + at, rows[j] + at + bytes, copy[j]);
      row[j] = copy[j];
    }
  }
  uint8_t copy[kColumnKeys][4 * kLanes] = {};
  const uint8_t* row[kColumnKeys];
};

template <class Kv>
void store_columns(const typename Kv::Columns& columns, int dims, float* keys) {
  for (int i = 0; i < dims; ++i) {
    const KeyLanes lanes = columns[i];
    store(keys + i * kTileKeys, lanes.low);
    store(keys + i * kTileKeys + kLanes, lanes.high);
  }
}

template <class Kv>
void load_keys(const uint8_t* const* rows, int dim, float* keys) {
  const int whole = dim / kLanes * kLanes;
  for (int d = 0; d < whole; d += kLanes) store_columns<Kv>({rows, d, dim}, kLanes, keys + d * kTileKeys);
  if (whole == dim) return;
  const int at = whole * Kv::kBytes;
  const Tail tail(rows, at, Kv::row_bytes(dim) - at);  // with the scale, where there is one
  store_columns<Kv>({tail.row, 0, dim - whole}, dim - whole, keys + whole * kTileKeys);
}

template <class Kv>
void load_values(const uint8_t* row, int dim, float* values) {
  const float scale = Kv::scale(row, dim);
  const int whole = dim / kLanes * kLanes, ld = padded(dim);
  for (int d = 0; d < whole; d += kLanes) store(values + d, Kv::values(row, d, scale));
  for (int d = whole; d < ld; d += kLanes) store(values + d, splat(0.0f));
  if (whole == dim) return;
  uint8_t tail[4 * kLanes] = {};
  std::copy(row + whole * Kv::kBytes, row + dim * Kv::kBytes, tail);
  store(values + whole, Kv::values(tail, 0, scale));
}

}  // namespace

int row_bytes(KvType type, int head_dim) {
  int bytes = 0;
  with_kv(type, [&](auto kv) { bytes = decltype(kv)::row_bytes(head_dim); });
  return bytes;
}

TileRows tile_rows(const KvLayer& kv, HeadShape shape, const Span& span, int tile, int count) {
  const ptrdiff_t token = static_cast<ptrdiff_t>(shape.kv_heads) * row_bytes(kv.type, shape.head_dim);
  const uint8_t* k = static_cast<const uint8_t*>(kv.k);
  const uint8_t* v = static_cast<const uint8_t*>(kv.v);
  TileRows rows;
  for (int j = 0; j < kTileKeys; ++j) {
    const int position = tile * kTileKeys + std::min(j, count - 1);
    const ptrdiff_t slot =
        static_cast<ptrdiff_t>(span.pages[position / kv.page_size]) * kv.page_size + position % kv.page_size;
    rows.k[j] = k + slot * token;
    rows.v[j] = v + slot * token;
  }
  return rows;
}

void fetch_tile(KvType type, HeadShape shape, const TileRows& rows, int kv_head) {
  const int bytes = row_bytes(type, shape.head_dim);
  const ptrdiff_t head = static_cast<ptrdiff_t>(kv_head) * bytes;
  for (const uint8_t* row : rows.k) fetch(row + head, bytes);
  for (const uint8_t* row : rows.v) fetch(row + head, bytes);
}

void load_tile(const KvLayer& kv, HeadShape shape, const TileRows& rows, int kv_head, int count, KvTile out) {
  const int dim = shape.head_dim, ld = padded(dim);
  const ptrdiff_t head = static_cast<ptrdiff_t>(kv_head) * row_bytes(kv.type, dim);
  with_kv(kv.type, [&](auto type) {
    using Kv = decltype(type);
    for (int j = 0; j < count; j += kColumnKeys) {
      const uint8_t* keys[kColumnKeys];
      for (int i = 0; i < kColumnKeys; ++i) keys[i] = rows.k[j + i] + head;
      load_keys<Kv>(keys, dim, out.keys + j);
    }
    for (int j = 0; j < count; ++j) load_values<Kv>(rows.v[j] + head, dim, out.values + j * ld);
  });
}

}  // namespace sapwood
