// One reader per weight format: walks a panel in ascending k and gives the 16 weights of each k as two vectors.
//
// A weight has one value, however it is read: q8 and q4_0 products are exact in float32, q4_1 is d·q + m rounded once.
#pragma once

#include "packed.h"
#include "simd.h"

namespace sapwood {

struct ReadF32 {
  template <class Use>
  static SAPWOOD_INLINE void walk(const uint8_t* panel, int inputs, Use use) {
    const float* p = reinterpret_cast<const float*>(panel);
    for (int k = 0; k < inputs; ++k, p += kPanel) use(k, load(p), load(p + 8));
  }
};

struct ReadF16 {
  template <class Use>
  static SAPWOOD_INLINE void walk(const uint8_t* panel, int inputs, Use use) {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(panel);
    for (int k = 0; k < inputs; ++k, p += kPanel) use(k, from_half(p), from_half(p + 8));
  }
};

struct ReadBf16 {
  template <class Use>
  static SAPWOOD_INLINE void walk(const uint8_t* panel, int inputs, Use use) {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(panel);
    for (int k = 0; k < inputs; ++k, p += kPanel) use(k, from_bf16(p), from_bf16(p + 8));
  }
};

struct ReadQ8 {
  template <class Use>
  static SAPWOOD_INLINE void walk(const uint8_t* panel, int inputs, Use use) {
    for (int k0 = 0; k0 < inputs; k0 += kBlock) {
      const uint16_t* scales = reinterpret_cast<const uint16_t*>(panel);
      const f32x8 d0 = from_half(scales), d1 = from_half(scales + 8);
      const uint8_t* q = panel + 32;
      for (int k = 0; k < kBlock; ++k, q += kPanel) use(k0 + k, from_i8(q) * d0, from_i8(q + 8) * d1);
      panel = q;
    }
  }
};

// q4_0 is q4_1 with m = -8·d, which is exact in float32.
template <bool kHasMin>
struct ReadQ4 {
  template <class Use>
  static SAPWOOD_INLINE void walk(const uint8_t* panel, int inputs, Use use) {
    for (int k0 = 0; k0 < inputs; k0 += kBlock) {
      const uint16_t* scales = reinterpret_cast<const uint16_t*>(panel);
      const f32x8 d0 = from_half(scales), d1 = from_half(scales + 8);
      const f32x8 m0 = kHasMin ? from_half(scales + 16) : d0 * splat(-8.0f);
      const f32x8 m1 = kHasMin ? from_half(scales + 24) : d1 * splat(-8.0f);
      const uint8_t* q = panel + (kHasMin ? 64 : 32);
      for (int k = 0; k < kBlock; k += 2, q += kPanel) pair(q, k0 + k, d0, d1, m0, m1, use);
      panel = q;
    }
  }

 private:
  template <class Use>
  static SAPWOOD_INLINE void pair(const uint8_t* q, int k, f32x8 d0, f32x8 d1, f32x8 m0, f32x8 m1, Use& use) {
#ifdef SAPWOOD_AVX2
    const __m256i a = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(q)));
    const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(q + 8)));
    const __m256i low = _mm256_set1_epi32(15);
    use(k, fma(_mm256_cvtepi32_ps(_mm256_and_si256(a, low)), d0, m0),
        fma(_mm256_cvtepi32_ps(_mm256_and_si256(b, low)), d1, m1));
    use(k + 1, fma(_mm256_cvtepi32_ps(_mm256_srli_epi32(a, 4)), d0, m0),
        fma(_mm256_cvtepi32_ps(_mm256_srli_epi32(b, 4)), d1, m1));
#else
    uint8_t even[kPanel], odd[kPanel];
    for (int i = 0; i < kPanel; ++i) even[i] = q[i] & 15, odd[i] = q[i] >> 4;
    use(k, fma(from_u8(even), d0, m0), fma(from_u8(even + 8), d1, m1));
    use(k + 1, fma(from_u8(odd), d0, m0), fma(from_u8(odd + 8), d1, m1));
#endif
  }
};

template <class Use>
SAPWOOD_INLINE void with_format(Format format, Use use) {
  switch (format) {
    case Format::f32: return use(ReadF32{});
    case Format::f16: return use(ReadF16{});
    case Format::bf16: return use(ReadBf16{});
    case Format::q8_0: return use(ReadQ8{});
    case Format::q4_0: return use(ReadQ4<false>{});
    case Format::q4_1: return use(ReadQ4<true>{});
  }
}

}  // namespace sapwood
