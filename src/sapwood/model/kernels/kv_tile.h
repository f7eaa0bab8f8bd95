// One tile of keys and values: where its tokens lie, and the tile converted to float32 for many rows.
#pragma once

#include "attention.h"
#include "simd.h"

namespace sapwood {

// Head dimension padded to whole register tiles of 16 columns.
inline int padded(int head_dim) { return (head_dim + 15) / 16 * 16; }

int row_bytes(KvType type, int head_dim);

// The tokens of one tile: each one's rows of kv head 0; head h lies h rows further. Beyond `count` the last is
// repeated, so that whole vectors of keys may be read; nobody looks at their scores.
struct TileRows {
  const uint8_t* k[kTileKeys];
  const uint8_t* v[kTileKeys];
};

TileRows tile_rows(const KvLayer& kv, HeadShape shape, const Span& span, int tile, int count);

// Asks for a tile's rows of one kv head, to the second-level cache.
void fetch_tile(KvType type, HeadShape shape, const TileRows& rows, int kv_head);

struct KvTile {
  float* keys;    // [head_dim][64], d-major, so that keys are the vector lanes
  float* values;  // [64][padded(head_dim)]
};

// Converts the first `count` keys and values of one kv head. What lies beyond is not read by any row.
void load_tile(const KvLayer& kv, HeadShape shape, const TileRows& rows, int kv_head, int count, KvTile out);

}  // namespace sapwood
