// What a token weighs in a draw: exp((logit - peak) · rate) in float64, the same bits on every machine.
//
// Multiplications and additions only, none of them fused (numpy, the slow twin, cannot fuse).
#pragma once

#include <cstdint>
#include <cstring>

#include "simd.h"

namespace sapwood {

typedef int64_t i64x4 __attribute__((vector_size(32)));

constexpr int kSummed = 64;  // tokens that are summed together: 8 lanes, then the tree of sum_lanes

SAPWOOD_INLINE f64x4 splat64(double x) { return f64x4{x, x, x, x}; }

// 1 / k!, the highest even k first, and the odd ones.
constexpr double kEven[] = {1.0 / 479001600, 1.0 / 3628800, 1.0 / 40320, 1.0 / 720, 1.0 / 24, 0.5, 1.0};
constexpr double kOdd[] = {1.0 / 39916800, 1.0 / 362880, 1.0 / 5040, 1.0 / 120, 1.0 / 6, 1.0};

// exp by Cody-Waite reduction (ln 2 in fdlibm's two parts) and Taylor's polynomial of degree 12, its even and
// its odd powers each by Horner; x ≤ 0.
// exp(0) is exactly 1; below -708, where results would be subnormal, it is exactly 0.
// N at a time: one alone would wait for its own chain.
template <int N>
SAPWOOD_INLINE void exp4(f64x4 (&x)[N]) {
  const f64x4 low = splat64(-708.0);
  const f64x4 shift = splat64(0x1.8p52);  // adding it rounds to a whole number, which is then in the low bits
  i64x4 alive[N], whole[N];
  f64x4 r[N], square[N], even[N], odd[N];
  for (int i = 0; i < N; ++i) {
    alive[i] = x[i] >= low;
    const f64x4 shifted = x[i] * splat64(1.44269504088896338700) + shift;
    const f64x4 n = shifted - shift;
    whole[i] = (i64x4)shifted;
    r[i] = (x[i] - n * splat64(6.93147180369123816490e-01)) - n * splat64(1.90821492927058770002e-10);
    square[i] = r[i] * r[i];
    even[i] = splat64(kEven[0]) * square[i] + splat64(kEven[1]);
    odd[i] = splat64(kOdd[0]);
  }
#pragma GCC unroll 1  // else the compiler would do the chains one after the other
  for (int k = 1; k <= 5; ++k)
    for (int i = 0; i < N; ++i) {
      even[i] = even[i] * square[i] + splat64(kEven[k + 1]);
      odd[i] = odd[i] * square[i] + splat64(kOdd[k]);
    }
  for (int i = 0; i < N; ++i) {
    const f64x4 y = (even[i] + odd[i] * r[i]) * (f64x4)((whole[i] + 1023) << 52);
    x[i] = (f64x4)((i64x4)y & alive[i]);
  }
}

constexpr int kAtOnce = 4;

struct Scale {
  double peak;  // the largest logit
  double rate;  // one over the temperature, finite

  // Weights of 4 · N logits.
  template <int N>
  SAPWOOD_INLINE void weigh(const float* logits, f64x4 (&out)[N]) const {
    for (int i = 0; i < N; ++i) out[i] = (widened(logits + 4 * i) - splat64(peak)) * splat64(rate);
    exp4<N>(out);
  }
};

// The sum of kSummed weights: lane l adds those at l, l + 8, …; then the tree.
SAPWOOD_INLINE double block_weight(const float* logits, Scale scale) {
  f64x4 low = splat64(0.0), high = low;
  for (int i = 0; i < kSummed; i += 4 * kAtOnce) {
    f64x4 w[kAtOnce];
    scale.weigh<kAtOnce>(logits + i, w);
    for (int j = 0; j < kAtOnce; j += 2) low += w[j], high += w[j + 1];
  }
  const f64x4 quads = low + high;
  return (quads[0] + quads[2]) + (quads[1] + quads[3]);
}

}  // namespace sapwood
