// How each KV type lies in a page and how it is widened to float32: one policy per type.
//
// Columns takes 8 dimensions of 16 keys and hands them out dimension by dimension with the keys as lanes. 16-bit keys
// are transposed as they are, before they are widened: half the shuffles.
#pragma once

#include <cstddef>

#include "attention.h"
#include "simd.h"

namespace sapwood {

constexpr int kColumnKeys = 16;
constexpr int kColumnDims = 8;

struct KeyLanes {
  f32x8 low, high;  // keys 0..7 and 8..15
};

constexpr int kLine = 64;  // bytes that memory gives at once

// To the second-level cache, which has room for a tile of all heads.
SAPWOOD_INLINE void fetch(const uint8_t* row, int bytes) {
  for (int at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 0, 2);
}

#ifdef SAPWOOD_AVX2

// 8×8 words in each half of the registers: lane i of r[j] becomes lane j of r[i].
SAPWOOD_INLINE void transpose_words(__m256i (&r)[8]) {
  __m256i a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi16(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi16(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm256_unpacklo_epi32(a[i + j], a[i + j + 2]);
      b[i + 2 * j + 1] = _mm256_unpackhi_epi32(a[i + j], a[i + j + 2]);
    }
  for (int i = 0; i < 4; ++i) {
    r[2 * i] = _mm256_unpacklo_epi64(b[i], b[i + 4]);
    r[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 4]);
  }
}

// Keys 0..7 in the lower halves, 8..15 in the upper.
struct WordColumns {
  explicit SAPWOOD_INLINE WordColumns(const uint8_t* const* rows, size_t at) {
    for (int i = 0; i < 8; ++i)
      t[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(words(rows[i] + at)), words(rows[i + 8] + at), 1);
    transpose_words(t);
  }
  static SAPWOOD_INLINE __m128i words(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  SAPWOOD_INLINE __m128i low(int i) const { return _mm256_castsi256_si128(t[i]); }
  SAPWOOD_INLINE __m128i high(int i) const { return _mm256_extracti128_si256(t[i], 1); }
  __m256i t[8];
};

#endif

// Dimension by dimension with scalar loads, for what has no better way.
template <class Kv>
struct PlainColumns {
  SAPWOOD_INLINE PlainColumns(const uint8_t* const* rows, int d, int dim) {
    for (int j = 0; j < kColumnKeys; ++j) {
      const f32x8 row = Kv::values(rows[j], d, Kv::scale(rows[j], dim));
      for (int i = 0; i < kColumnDims; ++i) t[i][j] = row[i];
    }
  }
  SAPWOOD_INLINE KeyLanes operator[](int i) const { return {load(t[i]), load(t[i] + kLanes)}; }
  float t[kColumnDims][kColumnKeys];
};

struct HalfKv {
  static constexpr int kBytes = 2;  // of one value
  static int row_bytes(int dim) { return 2 * dim; }
  static SAPWOOD_INLINE float scale(const uint8_t*, int) { return 1.0f; }
  static SAPWOOD_INLINE f32x8 values(const uint8_t* row, int d, float) {
    return from_half(reinterpret_cast<const uint16_t*>(row) + d);
  }
#ifdef SAPWOOD_AVX2
  struct Columns : WordColumns {
    SAPWOOD_INLINE Columns(const uint8_t* const* rows, int d, int) : WordColumns(rows, 2 * static_cast<size_t>(d)) {}
    SAPWOOD_INLINE KeyLanes operator[](int i) const {
      return {_mm256_cvtph_ps(low(i)), _mm256_cvtph_ps(high(i))};
    }
  };
#else
  using Columns = PlainColumns<HalfKv>;
#endif
};

struct Bf16Kv {
  static constexpr int kBytes = 2;
  static int row_bytes(int dim) { return 2 * dim; }
  static SAPWOOD_INLINE float scale(const uint8_t*, int) { return 1.0f; }
#ifdef SAPWOOD_AVX2
  static SAPWOOD_INLINE f32x8 widened(__m128i words) {
    return (f32x8)_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16);
  }
  static SAPWOOD_INLINE f32x8 values(const uint8_t* row, int d, float) {
    return widened(WordColumns::words(row + 2 * d));
  }
  struct Columns : WordColumns {
    SAPWOOD_INLINE Columns(const uint8_t* const* rows, int d, int) : WordColumns(rows, 2 * static_cast<size_t>(d)) {}
    SAPWOOD_INLINE KeyLanes operator[](int i) const { return {widened(low(i)), widened(high(i))}; }
  };
#else
  static SAPWOOD_INLINE f32x8 values(const uint8_t* row, int d, float) {
    return from_bf16(reinterpret_cast<const uint16_t*>(row) + d);
  }
  using Columns = PlainColumns<Bf16Kv>;
#endif
};

struct FloatKv {
  static constexpr int kBytes = 4;
  static int row_bytes(int dim) { return 4 * dim; }
  static SAPWOOD_INLINE float scale(const uint8_t*, int) { return 1.0f; }
  static SAPWOOD_INLINE f32x8 values(const uint8_t* row, int d, float) {
    return load(reinterpret_cast<const float*>(row) + d);
  }
  using Columns = PlainColumns<FloatKv>;
};

// int8 values, then one float32: value = float(q) * scale.
struct ByteKv {
  static constexpr int kBytes = 1;
  static int row_bytes(int dim) { return dim + static_cast<int>(sizeof(float)); }
  static SAPWOOD_INLINE float scale(const uint8_t* row, int dim) {
    float s;
    std::memcpy(&s, row + dim, sizeof s);
    return s;
  }
  static SAPWOOD_INLINE f32x8 values(const uint8_t* row, int d, float scale) { return from_i8(row + d) * splat(scale); }
#ifdef SAPWOOD_AVX2
  struct Columns {
    SAPWOOD_INLINE Columns(const uint8_t* const* rows, int d, int dim) {
      alignas(32) float scales[kColumnKeys];
      for (int j = 0; j < kColumnKeys; ++j) scales[j] = scale(rows[j], dim);
      low = load(scales), high = load(scales + kLanes);
      for (int i = 0; i < 8; ++i)
        t[i] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi64(bytes(rows[i] + d), bytes(rows[i + 8] + d)));
      transpose_words(t);
    }
    static SAPWOOD_INLINE __m128i bytes(const uint8_t* p) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    }
    static SAPWOOD_INLINE f32x8 widened(__m128i words) { return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(words)); }
    SAPWOOD_INLINE KeyLanes operator[](int i) const {
      return {widened(_mm256_castsi256_si128(t[i])) * low, widened(_mm256_extracti128_si256(t[i], 1)) * high};
    }
    __m256i t[8];
    f32x8 low, high;
  };
#else
  using Columns = PlainColumns<ByteKv>;
#endif
};

// Calls use(policy) with the policy of `type`.
template <class Use>
SAPWOOD_INLINE void with_kv(KvType type, Use use) {
  switch (type) {
    case KvType::f16: return use(HalfKv{});
    case KvType::bf16: return use(Bf16Kv{});
    case KvType::f32: return use(FloatKv{});
    case KvType::q8: return use(ByteKv{});
  }
}

}  // namespace sapwood
