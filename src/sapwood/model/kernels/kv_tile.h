// One tile of keys and values, converted to float32 and laid out for the register tile.
#pragma once

#include "attention.h"
#include "simd.h"

namespace sapwood {

// Head dimension padded to whole register tiles of 16 columns.
inline int padded(int head_dim) { return (head_dim + 15) / 16 * 16; }

struct KvTile {
  float* keys;    // [head_dim][64], d-major, so that keys are the vector lanes
  float* values;  // [64][padded(head_dim)]
};

// Fills `out` with positions tile*64 .. +count-1 of one kv head. Beyond them keys are zero and values are not written:
// no row reads them.
void load_tile(const KvLayer& kv, const Span& span, HeadShape shape, int kv_head, int tile, int count, KvTile out);

}  // namespace sapwood
