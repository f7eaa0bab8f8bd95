// One query's heads against one tile, straight from the pages: what a decode step is made of.
//
// Nothing is stored but the result: keys are transposed and widened in registers and used for all query heads of a kv
// head at once, values are widened on their way into the product. The sums are those of the converted tile.
#pragma once

#include "kv_tile.h"
#include "partials.h"

namespace sapwood {

struct TileOfQuery {
  const TileRows* rows;
  const TileRows* next;  // the tile that this thread reads afterwards, fetched meanwhile; the same where there is none
  int kv_head;
  KeyRange keys;
};

constexpr int kMostHeads = 8;  // more query heads to a kv head gain from a converted tile
constexpr int kMostHeadsAtOnce = 4;

// Whether the query path can read such rows; otherwise a tile is converted first.
bool reads_directly(const AttentionShape& s);

// q is [group][ld], scaled. slots[group] take the partials of the query heads.
void attend_one(const AttentionShape& s, KvType type, const TileOfQuery& tile, const float* q, const Slot* slots);

}  // namespace sapwood
