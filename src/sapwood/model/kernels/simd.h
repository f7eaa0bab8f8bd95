// Eight float lanes. The only place that knows an instruction set; every variant gives the same bits.
//
// Built with -ffp-contract=off: a multiply and an add fuse only where fma() says so.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define SAPWOOD_AVX2 1
#endif

namespace sapwood {

constexpr int kLanes = 8;
typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef double f64x4 __attribute__((vector_size(32)));

#define SAPWOOD_INLINE inline __attribute__((always_inline))

SAPWOOD_INLINE f32x8 load(const float* p) {
  f32x8 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

SAPWOOD_INLINE void store(float* p, f32x8 v) { std::memcpy(p, &v, sizeof v); }

SAPWOOD_INLINE f32x8 splat(float x) { return f32x8{x, x, x, x, x, x, x, x}; }

#ifdef SAPWOOD_AVX2

SAPWOOD_INLINE f32x8 fma(f32x8 a, f32x8 b, f32x8 c) { return _mm256_fmadd_ps(a, b, c); }
SAPWOOD_INLINE f32x8 max(f32x8 a, f32x8 b) { return _mm256_max_ps(a, b); }
SAPWOOD_INLINE f32x8 round_even(f32x8 a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SAPWOOD_INLINE i32x8 to_int(f32x8 a) { return (i32x8)_mm256_cvtps_epi32(a); }
SAPWOOD_INLINE f64x4 widened(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
SAPWOOD_INLINE f32x8 from_half(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
SAPWOOD_INLINE void to_half(uint16_t* p, f32x8 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
SAPWOOD_INLINE f32x8 from_u8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
SAPWOOD_INLINE f32x8 from_i8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

#else

#if defined(__aarch64__)
typedef __fp16 half_float;  // C++ knows _Float16 there only from GCC 13
#else
typedef _Float16 half_float;
#endif

SAPWOOD_INLINE f32x8 fma(f32x8 a, f32x8 b, f32x8 c) {
  f32x8 r;
  for (int i = 0; i < kLanes; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return r;
}
SAPWOOD_INLINE f32x8 max(f32x8 a, f32x8 b) { return a > b ? a : b; }
SAPWOOD_INLINE f32x8 round_even(f32x8 a) {
  f32x8 r;
  for (int i = 0; i < kLanes; ++i) r[i] = __builtin_nearbyintf(a[i]);
  return r;
}
SAPWOOD_INLINE i32x8 to_int(f32x8 a) { return __builtin_convertvector(a, i32x8); }
SAPWOOD_INLINE f64x4 widened(const float* p) {
  f32x4 v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, f64x4);
}
SAPWOOD_INLINE f32x8 from_half(const uint16_t* p) {
  f32x8 r;
  for (int i = 0; i < kLanes; ++i) {
    half_float h;
    std::memcpy(&h, p + i, 2);
    r[i] = static_cast<float>(h);
  }
  return r;
}
SAPWOOD_INLINE void to_half(uint16_t* p, f32x8 v) {
  for (int i = 0; i < kLanes; ++i) {
    const half_float h = static_cast<half_float>(v[i]);
    std::memcpy(p + i, &h, 2);
  }
}
SAPWOOD_INLINE f32x8 from_u8(const uint8_t* p) {
  f32x8 r;
  for (int i = 0; i < kLanes; ++i) r[i] = static_cast<float>(p[i]);
  return r;
}
SAPWOOD_INLINE f32x8 from_i8(const uint8_t* p) {
  f32x8 r;
  for (int i = 0; i < kLanes; ++i) r[i] = static_cast<float>(static_cast<int8_t>(p[i]));
  return r;
}

#endif

SAPWOOD_INLINE f32x8 from_bf16(const uint16_t* p) {
  f32x8 r;
  uint32_t bits[kLanes];
  for (int i = 0; i < kLanes; ++i) bits[i] = static_cast<uint32_t>(p[i]) << 16;
  std::memcpy(&r, bits, sizeof r);
  return r;
}

// Round to nearest even, as every bfloat16 library does; NaN keeps a quiet payload.
SAPWOOD_INLINE uint16_t to_bf16(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// One fixed tree, so that a sum over lanes has one order whatever the register width.
SAPWOOD_INLINE float sum_lanes(f32x8 v) {
  const float a = v[0] + v[4], b = v[1] + v[5], c = v[2] + v[6], d = v[3] + v[7];
  return (a + c) + (b + d);
}

SAPWOOD_INLINE float max_lanes(f32x8 v) {
  float m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// exp by Cody-Waite reduction and the degree-6 polynomial of the Cephes library (Moshier), by Horner.
// exp(0) is exactly 1; below -87.33 it is exactly 0; above 88.37 it stays at exp(88.37).
SAPWOOD_INLINE f32x8 exp8(f32x8 x) {
  const f32x8 low = splat(-87.33f);
  const i32x8 dead = x < low;
  x = x > splat(88.37f) ? splat(88.37f) : x;
  x = dead ? low : x;
  const f32x8 n = round_even(x * splat(1.44269504088896341f));
  f32x8 r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  f32x8 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + splat(1.0f);
  const i32x8 scale_bits = (to_int(n) + 127) << 23;
  const f32x8 y = p * (f32x8)scale_bits;
  return dead ? splat(0.0f) : y;
}

}  // namespace sapwood
