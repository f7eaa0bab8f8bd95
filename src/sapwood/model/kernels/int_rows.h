// Rows of activations as 16-bit integers, for products with block weights.
//
// A row is x ≈ 2^e · q with q in [-32768, 32767]: e depends on the row alone, the smallest that keeps its largest
// magnitude below 2^15 (but never below -126 or above 126). Scaling by a power of two is exact, so the only rounding is
// to the 16-bit grid, to nearest even. A row that holds an infinity or a NaN becomes NaN throughout.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sapwood {

struct IntRows {
  const int16_t* q;      // [count][ld]
  ptrdiff_t ld;
  const float* scale;    // [count], 2^e
  const float* sums;     // [count][ld / 32]: the sum of q over each block of 32, exact
  int count;

  IntRows from(int row, int n) const {
    return {q + row * ld, ld, scale + row, sums + row * (ld / 32), n};
  }
};

// One row of `width` floats, a multiple of 32. Gives its scale.
float quantise_row(const float* x, int width, int16_t* q, float* sums);

}  // namespace sapwood
