// One reader per weight format, and the walk over a panel in ascending k.
//
// A weight has one value, however it is read: q8 and q4_0 products are exact in float32, q4_1 is d·q + m rounded once.
#pragma once

#include "packed.h"
#include "simd.h"

namespace sapwood {

constexpr int kAhead = 2048;  // bytes

// A panel crosses memory pages, where the hardware's own prefetch stops.
SAPWOOD_INLINE void fetch_ahead(const uint8_t* at, int bytes) {
  for (int line = 0; line < bytes; line += 64) __builtin_prefetch(at + kAhead + line);
}

struct NoScale {};

template <class Element, int kBytes>
struct Plain {
  using Scale = NoScale;
  using Raw = const uint8_t*;
  static constexpr int kHeader = 0, kStep = 1, kStepBytes = kPanel * kBytes;
  static SAPWOOD_INLINE Scale scale(const uint8_t*) { return {}; }
  static SAPWOOD_INLINE Raw raw(const uint8_t* q) { return q; }
  static SAPWOOD_INLINE f32x8 weights(const Scale&, Raw q, int, int half) {
    return Element::load8(q + half * kLanes * kBytes);
  }
};

struct F32 {
  static constexpr int kBytes = 4;
  static SAPWOOD_INLINE f32x8 load8(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr int kBytes = 2;
  static SAPWOOD_INLINE f32x8 load8(const uint8_t* p) { return from_half(reinterpret_cast<const uint16_t*>(p)); }
};
struct Bf16 {
  static constexpr int kBytes = 2;
  static SAPWOOD_INLINE f32x8 load8(const uint8_t* p) { return from_bf16(reinterpret_cast<const uint16_t*>(p)); }
};

struct Q8 {
  struct Scale {
    f32x8 d[2];
  };
  using Raw = const uint8_t*;
  static constexpr int kHeader = 32, kStep = 1, kStepBytes = kPanel;
  static SAPWOOD_INLINE Raw raw(const uint8_t* q) { return q; }
  static SAPWOOD_INLINE Scale scale(const uint8_t* block) {
    const uint16_t* d = reinterpret_cast<const uint16_t*>(block);
    return {{from_half(d), from_half(d + 8)}};
  }
  static SAPWOOD_INLINE f32x8 weights(const Scale& s, Raw q, int, int half) {
    return from_i8(q + half * kLanes) * s.d[half];
  }
};

// q4_0 is q4_1 with m = -8·d, which is exact in float32.
template <bool kHasMin>
struct Q4 {
  struct Scale {
    f32x8 d[2], m[2];
  };
  static constexpr int kHeader = kHasMin ? 64 : 32, kStep = 2, kStepBytes = kPanel;
  static SAPWOOD_INLINE Scale scale(const uint8_t* block) {
    const uint16_t* d = reinterpret_cast<const uint16_t*>(block);
    const f32x8 d0 = from_half(d), d1 = from_half(d + 8);
    if (kHasMin) return {{d0, d1}, {from_half(d + 16), from_half(d + 24)}};
    return {{d0, d1}, {d0 * splat(-8.0f), d1 * splat(-8.0f)}};
  }
#ifdef SAPWOOD_AVX2
  struct Raw {
    __m256i both[2];
  };
  static SAPWOOD_INLINE Raw raw(const uint8_t* q) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(q))),
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(q + 8)))};
  }
  static SAPWOOD_INLINE f32x8 value(const Raw& r, int i, int half) {
    return _mm256_cvtepi32_ps(i ? _mm256_srli_epi32(r.both[half], 4)
                                : _mm256_and_si256(r.both[half], _mm256_set1_epi32(15)));
  }
#else
  using Raw = const uint8_t*;
  static SAPWOOD_INLINE Raw raw(const uint8_t* q) { return q; }
  static SAPWOOD_INLINE f32x8 value(Raw q, int i, int half) {
    uint8_t nibbles[kLanes];
    for (int c = 0; c < kLanes; ++c) nibbles[c] = i ? q[8 * half + c] >> 4 : q[8 * half + c] & 15;
    return from_u8(nibbles);
  }
#endif
  static SAPWOOD_INLINE f32x8 weights(const Scale& s, const Raw& r, int i, int half) {
    return fma(value(r, i, half), s.d[half], s.m[half]);
  }
};

// Walks P panels of one format side by side (two hide the latency of a single row's chain), k ascending:
// use(k, p, half, w) with w the 8 weights of panel p at k, lanes 0..7 (half 0) or 8..15.
template <class Reader, int P, class Use>
SAPWOOD_INLINE void walk(const uint8_t* const (&panels)[P], int inputs, Use use) {
  const uint8_t* at[P];
  for (int p = 0; p < P; ++p) at[p] = panels[p];
  const int block = Reader::kHeader ? kBlock : inputs;
  for (int k0 = 0; k0 < inputs; k0 += block) {
    typename Reader::Scale scales[P];
    for (int p = 0; p < P; ++p) {
      scales[p] = Reader::scale(at[p]);
      at[p] += Reader::kHeader;
      if (Reader::kHeader) fetch_ahead(at[p], Reader::kHeader + kBlock / Reader::kStep * Reader::kStepBytes);
    }
    for (int k = k0; k < k0 + block; k += Reader::kStep) {
      typename Reader::Raw raw[P];
      for (int p = 0; p < P; ++p) {
        raw[p] = Reader::raw(at[p]);
        at[p] += Reader::kStepBytes;
        if (!Reader::kHeader) fetch_ahead(at[p], Reader::kStepBytes);
      }
#pragma GCC unroll 2
      for (int i = 0; i < Reader::kStep; ++i)
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half)
#pragma GCC unroll 2
          for (int p = 0; p < P; ++p) use(k + i, p, half, Reader::weights(scales[p], raw[p], i, half));
    }
  }
}

template <class Use>
SAPWOOD_INLINE void with_format(Format format, Use use) {
  switch (format) {
    case Format::f32: return use(Plain<F32, 4>{});
    case Format::f16: return use(Plain<F16, 2>{});
    case Format::bf16: return use(Plain<Bf16, 2>{});
    case Format::q8_0: return use(Q8{});
    case Format::q4_0: return use(Q4<false>{});
    case Format::q4_1: return use(Q4<true>{});
  }
}

}  // namespace sapwood
