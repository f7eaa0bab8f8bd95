// Sixteen columns at once in 16-bit integers and 32-bit sums. Integer sums are exact in any order, so every variant and
// every register width gives the same bits.
//
// Compiled once for each instruction set, each time in a namespace of its own (int_kernels.h).
#pragma once

#include "simd.h"

#ifndef SAPWOOD_VARIANT
#error "included by the sources of a variant alone"
#endif

namespace sapwood {
namespace SAPWOOD_VARIANT {

// 16 int32, one a column; or 16 pairs of int16: k even in the low half, k odd in the high one.
struct Columns {
  i32x8 at[2];
};

SAPWOOD_INLINE Columns load_columns(const int16_t* p) {
  Columns c;
  for (int h = 0; h < 2; ++h) std::memcpy(&c.at[h], p + 16 * h, 32);  // at once, it would go through memory
  return c;
}

SAPWOOD_INLINE void store_columns(int16_t* p, const Columns& c) {
  for (int h = 0; h < 2; ++h) std::memcpy(p + 16 * h, &c.at[h], 32);
}

SAPWOOD_INLINE int32_t pair(const int16_t* p) {
  int32_t both;
  std::memcpy(&both, p, 4);
  return both;
}

SAPWOOD_INLINE int32_t four(const int8_t* p) {
  int32_t all;
  std::memcpy(&all, p, 4);
  return all;
}

#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
constexpr bool kFuses = true;
SAPWOOD_INLINE __m256i fused_dot(__m256i sums, __m256i w, __m256i x) {
#ifdef __AVXVNNI__
  return _mm256_dpwssd_avx_epi32(sums, w, x);
#else
  return _mm256_dpwssd_epi32(sums, w, x);
#endif
}
#elif defined(SAPWOOD_AVX2)
constexpr bool kFuses = false;
SAPWOOD_INLINE __m256i fused_dot(__m256i sums, __m256i, __m256i) { return sums; }
#endif

// sums[c] += w[c].even * x.even + w[c].odd * x.odd. A fused instruction takes 4 to 5 cycles from sum to sum, a plain
// addition one: with `many` sums in turn the former is the faster, else the latter.
template <bool many>
SAPWOOD_INLINE void dot(Columns& sums, const Columns& w, int32_t x) {
  const i32x8 both = {x, x, x, x, x, x, x, x};
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
#if defined(SAPWOOD_AVX2)
    if (many && kFuses) {
      sums.at[h] = (i32x8)fused_dot((__m256i)sums.at[h], (__m256i)w.at[h], (__m256i)both);
      continue;
    }
    // Written out, for the compiler sums the products of several pairs in a tree, which spills: half the speed.
    __m256i products;
    asm("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+x"(sums.at[h]), "=&x"(products) : "x"(both), "x"(w.at[h]));
#else
    sums.at[h] += (w.at[h] << 16 >> 16) * (both << 16 >> 16) + (w.at[h] >> 16) * (both >> 16);
#endif
  }
}

// The first of such sums.
SAPWOOD_INLINE Columns first_dot(const Columns& w, int32_t x) {
  const i32x8 both = {x, x, x, x, x, x, x, x};
  Columns sums;
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
#if defined(SAPWOOD_AVX2)
    sums.at[h] = (i32x8)_mm256_madd_epi16((__m256i)both, (__m256i)w.at[h]);
#else
    sums.at[h] = (w.at[h] << 16 >> 16) * (both << 16 >> 16) + (w.at[h] >> 16) * (both >> 16);
#endif
  }
  return sums;
}

SAPWOOD_INLINE f32x8 to_float(i32x8 v) { return __builtin_convertvector(v, f32x8); }

// 32 int8 as 16 pairs.
SAPWOOD_INLINE Columns widen(const uint8_t* p) {
  Columns c;
#ifdef SAPWOOD_AVX2
  for (int h = 0; h < 2; ++h)
    c.at[h] = (i32x8)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * h)));
#else
  int16_t wide[32];
  for (int i = 0; i < 32; ++i) wide[i] = static_cast<int8_t>(p[i]);
  c = load_columns(wide);
#endif
  return c;
}

typedef int16_t i16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));

// Of words that hold four nibbles each, nibble i as 16-bit integers: 0..15, or -8..7 where it is signed.
template <int i, bool kSigned>
SAPWOOD_INLINE Columns nibbles(const Columns& words) {
  Columns c;
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const u16x16 w = (u16x16)words.at[h];
    if (kSigned) c.at[h] = (i32x8)((i16x16)(i < 3 ? w << (12 - 4 * i) : w) >> 12);
    else c.at[h] = (i32x8)(i == 3 ? w >> 12 : (i ? w >> (4 * i) : w) & 15);
  }
  return c;
}

// Of bytes with two nibbles each, the low or the high ones, as bytes.
template <bool kHigh>
SAPWOOD_INLINE Columns half_bytes(const Columns& bytes) {
  Columns c;
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const u16x16 b = (u16x16)bytes.at[h];
    c.at[h] = (i32x8)((kHigh ? b >> 4 : b) & 0x0f0f);
  }
  return c;
}

// sums[c] += the products of four nibbles w[c] and four int8 in x; in int16 where the machine does so, which holds a
// block (32·15·127 / 2 < 2^15). Written out as dot() is.
SAPWOOD_INLINE void dot4(Columns& sums, const Columns& w, int32_t x) {
  const i32x8 four = {x, x, x, x, x, x, x, x};
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
#ifdef SAPWOOD_AVX2
    __m256i products;
    asm("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0" : "+x"(sums.at[h]), "=&x"(products) : "x"(four), "x"(w.at[h]));
#else
    for (int j = 0; j < 4; ++j) sums.at[h] += (w.at[h] >> 8 * j & 255) * (four << (24 - 8 * j) >> 24);
#endif
  }
}

// The sums of dot4 in int32.
SAPWOOD_INLINE i32x8 whole(i32x8 sums) {
#ifdef SAPWOOD_AVX2
  return (i32x8)_mm256_madd_epi16((__m256i)sums, _mm256_set1_epi16(1));
#else
  return sums;
#endif
}

}  // namespace SAPWOOD_VARIANT
}  // namespace sapwood
