// Readers of panels laid out for integer products (packed.h): 16 columns of a pair of k at a time.
#pragma once

#include "formats.h"
#include "int_simd.h"

namespace sapwood {
namespace SAPWOOD_VARIANT {

constexpr int kPairs = kBlock / 2;

struct IntScale {
  f32x8 d[2], m[2];  // m only where the reader has a minimum
};

SAPWOOD_INLINE void halves(const uint8_t* p, f32x8 (&to)[2]) {
  const uint16_t* d = reinterpret_cast<const uint16_t*>(p);
  to[0] = from_half(d), to[1] = from_half(d + 8);
}

struct IntQ8 {
  static constexpr bool kPacked = true, kHasMin = false;
  static constexpr int kHeader = 32, kBytes = 32 + kBlock * kPanel;
  static SAPWOOD_INLINE IntScale scale(const uint8_t* block) {
    IntScale s;
    halves(block, s.d);
    return s;
  }
  // use(pair, weights) for each pair of k of one block, ascending
  template <class Use>
  static SAPWOOD_INLINE void walk(const uint8_t* block, Use use) {
    const uint8_t* q = block + kHeader;
#pragma GCC unroll 16
    for (int p = 0; p < kPairs; ++p) use(p, widen(q + 32 * p));
  }
};

template <bool kMin>
struct IntQ4 {
  static constexpr bool kPacked = true, kHasMin = kMin;
  static constexpr int kHeader = kMin ? 64 : 32, kBytes = kHeader + kBlock * kPanel / 2;
  static SAPWOOD_INLINE IntScale scale(const uint8_t* block) {
    IntScale s;
    halves(block, s.d);
    if (kMin) halves(block + 32, s.m);
    return s;
  }
  template <class Use>
  static SAPWOOD_INLINE void walk(const uint8_t* block, Use use) {
    const int16_t* q = reinterpret_cast<const int16_t*>(block + kHeader);
#pragma GCC unroll 4
    for (int g = 0; g < kPairs / 4; ++g) {
      const Columns words = load_columns(q + 32 * g);
      use(4 * g, nibbles<0, !kMin>(words));
      use(4 * g + 1, nibbles<1, !kMin>(words));
      use(4 * g + 2, nibbles<2, !kMin>(words));
      use(4 * g + 3, nibbles<3, !kMin>(words));
    }
  }
};

// A panel unpacked once for many rows, per block: 16 float scales, 16 minima, then [16 pairs][16 columns][2] int16.
template <bool kMin>
struct Expanded {
  static constexpr bool kPacked = false, kHasMin = kMin;
  static constexpr int kHeader = 128, kBytes = kHeader + kBlock * kPanel * 2;
  static SAPWOOD_INLINE IntScale scale(const uint8_t* block) {
    const float* d = reinterpret_cast<const float*>(block);
    IntScale s;
    s.d[0] = load(d), s.d[1] = load(d + 8);
    if (kMin) s.m[0] = load(d + 16), s.m[1] = load(d + 24);
    return s;
  }
  template <class Use>
  static SAPWOOD_INLINE void walk(const uint8_t* block, Use use) {
    const int16_t* q = reinterpret_cast<const int16_t*>(block + kHeader);
#pragma GCC unroll 16
    for (int p = 0; p < kPairs; ++p) use(p, load_columns(q + 32 * p));
  }
};

template <class Use>
SAPWOOD_INLINE void with_int_format(Format format, Use use) {
  switch (format) {
    case Format::q8_0: return use(IntQ8{});
    case Format::q4_0: return use(IntQ4<false>{});
    default: return use(IntQ4<true>{});
  }
}

}  // namespace SAPWOOD_VARIANT
}  // namespace sapwood
