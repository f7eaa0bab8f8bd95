#include "kv_tile.h"

#include <algorithm>

namespace sapwood {

namespace {

struct HalfKv {
  using Element = uint16_t;
  static SAPWOOD_INLINE f32x8 at(const uint16_t* p) { return from_half(p); }
};
struct Bf16Kv {
  using Element = uint16_t;
  static SAPWOOD_INLINE f32x8 at(const uint16_t* p) { return from_bf16(p); }
};
struct FloatKv {
  using Element = float;
  static SAPWOOD_INLINE f32x8 at(const float* p) { return load(p); }
};

template <class Kv>
SAPWOOD_INLINE f32x8 some(const typename Kv::Element* p, int count) {
  if (count >= kLanes) return Kv::at(p);
  typename Kv::Element rest[kLanes] = {};
  std::copy(p, p + count, rest);
  return Kv::at(rest);
}

SAPWOOD_INLINE void transpose8(f32x8 (&r)[8]) {
#ifdef SAPWOOD_AVX2
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
#else
  f32x8 t[8];
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) t[j][i] = r[i][j];
  for (int i = 0; i < 8; ++i) r[i] = t[i];
#endif
}

template <class Kv>
void load_as(const KvLayer& kv, const Span& span, HeadShape shape, int kv_head, int tile, int count, KvTile out) {
  using Element = typename Kv::Element;
  const int dim = shape.head_dim, ld = padded(dim);
  const ptrdiff_t token = static_cast<ptrdiff_t>(shape.kv_heads) * dim;
  ptrdiff_t at[kTileKeys];
  for (int j = 0; j < count; ++j) {
    const int position = tile * kTileKeys + j;
    const ptrdiff_t slot =
        static_cast<ptrdiff_t>(span.pages[position / kv.page_size]) * kv.page_size + position % kv.page_size;
    at[j] = slot * token + static_cast<ptrdiff_t>(kv_head) * dim;
  }
  const Element* k = static_cast<const Element*>(kv.k);
  const Element* v = static_cast<const Element*>(kv.v);
  for (int j = 0; j < kTileKeys; j += kLanes) {
    const int live = std::min(kLanes, count - j);
    for (int d = 0; d < dim; d += kLanes) {
      const int dims = std::min(kLanes, dim - d);
      f32x8 block[8];
      for (int i = 0; i < kLanes; ++i) block[i] = i < live ? some<Kv>(k + at[j + i] + d, dims) : splat(0.0f);
      transpose8(block);
      for (int i = 0; i < dims; ++i) store(out.keys + (d + i) * kTileKeys + j, block[i]);
    }
  }
  for (int j = 0; j < count; ++j)
    for (int d = 0; d < ld; d += kLanes)
      store(out.values + j * ld + d, d < dim ? some<Kv>(v + at[j] + d, dim - d) : splat(0.0f));
}

}  // namespace

void load_tile(const KvLayer& kv, const Span& span, HeadShape shape, int kv_head, int tile, int count, KvTile out) {
  switch (kv.type) {
    case KvType::f16: return load_as<HalfKv>(kv, span, shape, kv_head, tile, count, out);
    case KvType::bf16: return load_as<Bf16Kv>(kv, span, shape, kv_head, tile, count, out);
    case KvType::f32: return load_as<FloatKv>(kv, span, shape, kv_head, tile, count, out);
  }
}

}  // namespace sapwood
