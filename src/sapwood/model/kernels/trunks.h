// Which sequences of a step read the same tiles: found once per step, by comparing page tables.
//
// Pages are shared where the tree shares them, so equal page ids at equal positions are the trunk. Tiles of a trunk are
// read and converted once for all its rows (Hydragen, Juravsky et al. 2024; ChunkAttention, Ye et al. 2024): a tile's
// partial depends on the query and the tile alone, so no bit moves.
#pragma once

#include <vector>

#include "attention.h"

namespace sapwood {

// Consecutive tiles [first, last) that the same spans read. Only whole tiles have more than one.
struct Stretch {
  int first, last;
  std::vector<int> spans;  // ascending
};

// Cuts the tiles of all spans into stretches: the compressed trie over the page tables. With `share` false each span
// has one stretch to itself.
std::vector<Stretch> stretches_of(const std::vector<Span>& spans, int page_size, bool share);

}  // namespace sapwood
