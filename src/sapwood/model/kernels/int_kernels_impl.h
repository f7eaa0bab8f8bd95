// The kernels of one variant; see int_kernels.h.
#pragma once

#include "int_formats.h"
#include "int_kernels.h"

namespace sapwood {
namespace SAPWOOD_VARIANT {

// Where each of R rows goes on, each a pointer of its own to the compiler, which else keeps the sum of each row and
// each pair and spills them all.
template <int R, class Element>
struct Cursors {
  const Element* at[R];

  SAPWOOD_INLINE Cursors(const Element* first, ptrdiff_t ld) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) at[r] = first + r * ld;
  }
  SAPWOOD_INLINE void hold() {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) asm("" : "+r"(at[r]));
  }
  SAPWOOD_INLINE void advance() {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) at[r] += kBlock;
  }
};

// With kExpands the panel is written to `to` as it is unpacked; the products hide the stores.
template <int R, class Reader, bool kExpands = false>
void multiply(const uint8_t* panel, int inputs, const IntRows& rows, float (*out)[kPanel], uint8_t* to = nullptr) {
  f32x8 chain[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) chain[r][0] = chain[r][1] = splat(0.0f);
  Cursors<R, int16_t> q(rows.q, rows.ld);
  for (int b = 0; b < inputs / kBlock; ++b, panel += Reader::kBytes, q.advance()) {
    if (Reader::kPacked) fetch_ahead(panel, Reader::kBytes);
    q.hold();
    Columns sums[R];
    int16_t* const wide = kExpands ? reinterpret_cast<int16_t*>(to + Expanded<true>::kHeader) : nullptr;
    Reader::walk(panel, [&](int p, const Columns& w) __attribute__((always_inline)) {
      if (kExpands) store_columns(wide + 32 * p, w);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        if (p == 0) sums[r] = first_dot(w, pair(q.at[r]));
        else dot<(R > 3)>(sums[r], w, pair(q.at[r] + 2 * p));
      }
    });
    const IntScale s = Reader::scale(panel);
    if (kExpands) {
      float* d = reinterpret_cast<float*>(to);
      store(d, s.d[0]), store(d + 8, s.d[1]);
      if (Reader::kHasMin) store(d + 16, s.m[0]), store(d + 24, s.m[1]);
      to += Expanded<true>::kBytes;
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const f32x8 x = splat(Reader::kHasMin ? rows.sums[r * (rows.ld / kBlock) + b] : 0.0f);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        chain[r][h] = fma(to_float(sums[r].at[h]), s.d[h], chain[r][h]);
        if (Reader::kHasMin) chain[r][h] = fma(x, s.m[h], chain[r][h]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int h = 0; h < 2; ++h) store(out[r] + 8 * h, chain[r][h] * splat(rows.scale[r]));
}

template <int kMost, class Reader>
SAPWOOD_INLINE void multiply_some(const uint8_t* panel, int inputs, const IntRows& rows, float (*out)[kPanel]) {
  switch (rows.count) {
    case 1: return multiply<1, Reader>(panel, inputs, rows, out);
    case 2: return multiply<2, Reader>(panel, inputs, rows, out);
    case 3: return multiply<3, Reader>(panel, inputs, rows, out);
    case 4: return multiply<4, Reader>(panel, inputs, rows, out);
    case 5: return multiply<kMost < 5 ? 1 : 5, Reader>(panel, inputs, rows, out);
    default: return multiply<kMost < 6 ? 1 : 6, Reader>(panel, inputs, rows, out);
  }
}

inline void direct(const Panel& panel, int inputs, const IntRows& rows, float (*out)[kPanel]) {
  with_int_format(panel.format, [&](auto reader) {
    multiply_some<kIntDirectRows, decltype(reader)>(panel.data, inputs, rows, out);
  });
}

template <int R, bool kMin>
void multiply8(const uint8_t* panel, int inputs, const Int8Rows& rows, float (*out)[kPanel]) {
  using Reader = IntQ4<kMin>;
  f32x8 chain[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) chain[r][0] = chain[r][1] = splat(0.0f);
  Cursors<R, int8_t> q(rows.q, rows.ld);
  for (int b = 0; b < inputs / kBlock; ++b, panel += Reader::kBytes, q.advance()) {
    fetch_ahead(panel, Reader::kBytes);
    q.hold();
    Columns sums[R] = {};
    const int16_t* bytes = reinterpret_cast<const int16_t*>(panel + Reader::kHeader);
#pragma GCC unroll 4
    for (int g = 0; g < kBlock / 8; ++g) {
      const Columns w = load_columns(bytes + 32 * g), low = half_bytes<false>(w);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) dot4(sums[r], low, four(q.at[r] + 8 * g));
      const Columns high = half_bytes<true>(w);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) dot4(sums[r], high, four(q.at[r] + 8 * g + 4));
    }
    const IntScale s = Reader::scale(panel);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const ptrdiff_t at = r * (rows.ld / kBlock) + b;
      const f32x8 scale = splat(rows.block_scale[at]), sum = splat(rows.sums[at]);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        f32x8 v = to_float(whole(sums[r].at[h]));
        if (!kMin) v = fma(splat(-8.0f), sum, v);  // exact
        chain[r][h] = fma(v * scale, s.d[h], chain[r][h]);
        if (kMin) chain[r][h] = fma(sum * scale, s.m[h], chain[r][h]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int h = 0; h < 2; ++h) store(out[r] + 8 * h, chain[r][h] * splat(rows.scale[r]));
}

template <bool kMin>
SAPWOOD_INLINE void multiply8_some(const uint8_t* panel, int inputs, const Int8Rows& rows, float (*out)[kPanel]) {
  switch (rows.count) {
    case 1: return multiply8<1, kMin>(panel, inputs, rows, out);
    case 2: return multiply8<2, kMin>(panel, inputs, rows, out);
    case 3: return multiply8<3, kMin>(panel, inputs, rows, out);
    case 4: return multiply8<4, kMin>(panel, inputs, rows, out);
    case 5: return multiply8<5, kMin>(panel, inputs, rows, out);
    default: return multiply8<6, kMin>(panel, inputs, rows, out);
  }
}

inline void direct8(const Panel& panel, int inputs, const Int8Rows& rows, float (*out)[kPanel]) {
  if (panel.format == Format::q4_1) multiply8_some<true>(panel.data, inputs, rows, out);
  else multiply8_some<false>(panel.data, inputs, rows, out);
}

inline void expand(const Panel& panel, int inputs, const IntRows& rows, float (*out)[kPanel], uint8_t* to) {
  with_int_format(panel.format, [&](auto reader) {
    using Reader = decltype(reader);
    switch (rows.count) {
      case 1: return multiply<1, Reader, true>(panel.data, inputs, rows, out, to);
      case 2: return multiply<2, Reader, true>(panel.data, inputs, rows, out, to);
      case 3: return multiply<3, Reader, true>(panel.data, inputs, rows, out, to);
      default: return multiply<4, Reader, true>(panel.data, inputs, rows, out, to);
    }
  });
}

inline void tiled(const uint8_t* expanded, Format format, int inputs, const IntRows& rows, float (*out)[kPanel]) {
  if (format == Format::q4_1) multiply_some<kIntRows, Expanded<true>>(expanded, inputs, rows, out);
  else multiply_some<kIntRows, Expanded<false>>(expanded, inputs, rows, out);
}

}  // namespace SAPWOOD_VARIANT
}  // namespace sapwood
