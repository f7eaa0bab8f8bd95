// The register tile: up to 6 rows × 16 columns, every output one chain of fused multiply-adds in ascending k.
//
// Rows and columns are vectorised and tiled, k never is: so the row count, the tile and the thread cannot move a bit.
#pragma once

#include <cstddef>
#include <type_traits>

#include "simd.h"

namespace sapwood {

constexpr int kTileRows = 6;

// sum[r][0..15] goes on as a chain over k of a[r][k] * b[k][0..15]. `lda`, `ldb` in floats.
template <int R>
SAPWOOD_INLINE void tile_on(const float* a, ptrdiff_t lda, const float* b, ptrdiff_t ldb, int depth, f32x8 (&lo)[R],
                            f32x8 (&hi)[R]) {
  for (int k = 0; k < depth; ++k, b += ldb) {
    const f32x8 b0 = load(b), b1 = load(b + 8);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const f32x8 x = splat(a[r * lda + k]);
      lo[r] = fma(x, b0, lo[r]);
      hi[r] = fma(x, b1, hi[r]);
    }
  }
}

// The same from zero.
template <int R>
SAPWOOD_INLINE void tile(const float* a, ptrdiff_t lda, const float* b, ptrdiff_t ldb, int depth, f32x8 (&lo)[R],
                         f32x8 (&hi)[R]) {
  for (int r = 0; r < R; ++r) lo[r] = hi[r] = splat(0.0f);
  tile_on<R>(a, lda, b, ldb, depth, lo, hi);
}

// Cuts `rows` into tiles of nearly equal height, for a tile of one or two rows waits for its own chains:
// body(first row, rows).
template <class Body>
SAPWOOD_INLINE void in_tiles(int rows, Body body) {
  const int tiles = (rows + kTileRows - 1) / kTileRows;
  for (int i = 0, first = 0; i < tiles; ++i) {
    const int n = (rows - first + tiles - i - 1) / (tiles - i);
    body(first, n);
    first += n;
  }
}

// Calls use(std::integral_constant<int, R>) with R = rows, 1..6.
template <class Use>
SAPWOOD_INLINE void with_rows(int rows, Use use) {
  switch (rows) {
    case 1: return use(std::integral_constant<int, 1>{});
    case 2: return use(std::integral_constant<int, 2>{});
    case 3: return use(std::integral_constant<int, 3>{});
    case 4: return use(std::integral_constant<int, 4>{});
    case 5: return use(std::integral_constant<int, 5>{});
    default: return use(std::integral_constant<int, 6>{});
  }
}

}  // namespace sapwood
